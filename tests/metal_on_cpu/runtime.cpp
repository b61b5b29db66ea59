// Threadgroups on one CPU thread: every thread of a group is a fiber.
//
// A group runs in rounds: each SIMD-group's lanes, one after another, until all wait; what all lanes
// of a SIMD-group wait for is done, and then what all threads of the group wait for. A fault ends
// the dispatch with a message.
#include "runtime.h"

#include "memory.h"

#include <csetjmp>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <ucontext.h>

namespace {

constexpr unsigned MOST_THREADS = 1024;
constexpr size_t PAGE = 4096, STACK = 128 << 10;

enum class State { READY, BARRIER, SIMD_BARRIER, EXCHANGE, DONE };

struct Fiber {
    ShimPlace place;
    void *stack;  // where it goes on
    State state;
    const ShimSite *site;
    unsigned exchanges;
};

const ShimLaunch *launch;
Fiber fibers[MOST_THREADS], *current;
ShimExchange exchanges[MOST_THREADS][2];  // of a SIMD-group: one is read while the next is filled
void *scheduler;
char *stacks;
unsigned threads;
sigjmp_buf out;
char message[2048];

// Saves what a call must preserve on the stack, and goes on with another stack.
extern "C" void shim_switch(void **from, void *to);
asm(".text\nshim_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");
constexpr int SAVED = 6;  // words

unsigned nth(unsigned k, unsigned n) {
    if (launch->order == 0) return k;
    if (launch->order == 1) return n - 1 - k;
    return (k * 37 + 11) % n;  // no group has a multiple of 37 threads
}

void start() {
    launch->body(launch->arguments, &current->place);
    current->state = State::DONE;
    shim_switch(&current->stack, scheduler);
}

void prepare(unsigned index, const unsigned group[3]) {
    Fiber &fiber = fibers[index];
    // Tops are spread, or they would all share a few lines of the cache.
    void **words = (void **)(stacks + (index + 1) * (PAGE + STACK) - index % 61 * 64 - 64);
    memset(words - 2 - SAVED, 0, (SAVED + 2) * sizeof *words);
    words[-2] = (void *)start;  // returned to, with the stack as a call leaves it
    fiber.stack = words - 2 - SAVED;
    fiber.state = State::READY;
    fiber.exchanges = 0;
    ShimPlace &place = fiber.place;
    unsigned rest = index;
    for (int axis = 0; axis < 3; axis++) {
        place.threads[axis] = launch->threads[axis];
        place.groups[axis] = launch->groups[axis];
        place.group[axis] = group[axis];
        place.local[axis] = rest % launch->threads[axis];
        rest /= launch->threads[axis];
    }
    place.index = index;
    place.lane = index % launch->simd;
    place.width = launch->simd;
}

void run(Fiber &fiber) {
    current = &fiber;
    shim_place = &fiber.place;
    shim_switch(&scheduler, fiber.stack);
}

void wait(State state, const ShimSite *site) {
    Fiber &fiber = *current;
    fiber.state = state;
    fiber.site = site;
    shim_switch(&fiber.stack, scheduler);
}

// Runs the lanes of one SIMD-group until all wait at the threadgroup's barrier or are done.
void run_lanes(unsigned first, unsigned lanes) {
    for (;;) {
        for (unsigned k = 0; k < lanes; k++) {
            Fiber &fiber = fibers[first + nth(k, lanes)];
            if (fiber.state == State::READY) run(fiber);
        }
        const Fiber *one = nullptr;
        unsigned long taking = 0;
        for (unsigned i = 0; i < lanes; i++) {
            const Fiber &fiber = fibers[first + i];
            if (fiber.state == State::BARRIER || fiber.state == State::DONE) continue;
            if (one && one->site != fiber.site)
                shim_fault("lanes %u and %u of a SIMD-group wait in different places, %s:%u and %s:%u",
                           one->place.lane, i, one->site->file, one->site->line, fiber.site->file, fiber.site->line);
            one = one ? one : &fiber;
            taking |= 1ul << i;
        }
        if (!one) return;
        if (one->state == State::SIMD_BARRIER) {
            if (taking != ~0ul >> (64 - lanes))
                shim_fault("%s:%u: a simdgroup_barrier that not all lanes reach", one->site->file, one->site->line);
            memory::simd_barriers[first / launch->simd]++;
        } else {
            ShimExchange &all = exchanges[first / launch->simd][(one->exchanges - 1) & 1];
            all.lanes = taking;
            all.reduced = false;
        }
        for (unsigned i = 0; i < lanes; i++)
            if (taking >> i & 1) fibers[first + i].state = State::READY;
    }
}

void run_group(const unsigned group[3]) {
    unsigned simdgroups = (threads + launch->simd - 1) / launch->simd;
    for (unsigned i = 0; i < threads; i++) prepare(i, group);
    memory::begin_group(*launch, simdgroups);
    for (;; memory::round++) {
        for (unsigned k = 0; k < simdgroups; k++) {
            unsigned first = nth(k, simdgroups) * launch->simd, left = threads - first;
            run_lanes(first, left < launch->simd ? left : launch->simd);
        }
        unsigned done = 0;
        const Fiber *waits = nullptr;
        for (unsigned i = 0; i < threads; i++) {
            Fiber &fiber = fibers[i];
            if (fiber.state == State::DONE) {
                done++;
                continue;
            }
            if (waits && waits->site != fiber.site)
                shim_fault("threads %u and %u wait at different barriers, %s:%u and %s:%u", waits->place.index, i,
                           waits->site->file, waits->site->line, fiber.site->file, fiber.site->line);
            waits = &fiber;
            fiber.state = State::READY;
        }
        if (!waits) return memory::end_group();
        if (done)
            shim_fault("%s:%u: a barrier that %u of %u threads do not reach", waits->site->file, waits->site->line,
                       done, threads);
    }
}

void on_signal(int number, siginfo_t *info, void *) {
    const char *what = number == SIGSEGV || number == SIGBUS ? "touches memory that is not there" : "divides by zero";
    snprintf(message, sizeof message, "thread %u of group (%u, %u, %u) %s, address %p", shim_place->index,
             shim_place->group[0], shim_place->group[1], shim_place->group[2], what, info->si_addr);
    siglongjmp(out, 1);
}

// Signals are caught on a stack of their own while kernels run.
struct Signals {
    static constexpr int numbers[] = {SIGSEGV, SIGBUS, SIGFPE};
    struct sigaction before[3];
    stack_t stack_before;
    static inline char stack[64 << 10];

    Signals() {
        stack_t own = {stack, 0, sizeof stack};
        sigaltstack(&own, &stack_before);
        struct sigaction action = {};
        action.sa_sigaction = on_signal;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        for (int i = 0; i < 3; i++) sigaction(numbers[i], &action, &before[i]);
    }
    ~Signals() {
        for (int i = 0; i < 3; i++) sigaction(numbers[i], &before[i], nullptr);
        sigaltstack(&stack_before, nullptr);
    }
};

}  // namespace

const ShimPlace *shim_place;

void shim_fault(const char *format, ...) {
    int length = 0;
    if (shim_place)
        length = snprintf(message, sizeof message, "group (%u, %u, %u): ", shim_place->group[0], shim_place->group[1],
                          shim_place->group[2]);
    va_list rest;
    va_start(rest, format);
    vsnprintf(message + length, sizeof message - length, format, rest);
    siglongjmp(out, 1);
}

void shim_barrier(const ShimSite *site) { wait(State::BARRIER, site); }

void shim_simdgroup_barrier(const ShimSite *site) { wait(State::SIMD_BARRIER, site); }

ShimExchange *shim_exchange(const void *value, unsigned long nbytes, const ShimSite *site) {
    Fiber &fiber = *current;
    ShimExchange &all = exchanges[fiber.place.index / launch->simd][fiber.exchanges++ & 1];
    memcpy(all.values[fiber.place.lane], value, nbytes);
    wait(State::EXCHANGE, site);
    return &all;
}

// Runs a kernel. Returns null, or what is wrong with it.
extern "C" const char *shim_run(const ShimLaunch *given) {
    launch = given;
    threads = launch->threads[0] * launch->threads[1] * launch->threads[2];
    if (!stacks) {
        size_t nbytes = MOST_THREADS * (PAGE + STACK);
        stacks = (char *)mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        for (unsigned i = 0; i < MOST_THREADS; i++) mprotect(stacks + i * (PAGE + STACK), PAGE, PROT_NONE);
        memory::allow_stacks(stacks, nbytes);
    }
    Signals signals;
    shim_place = nullptr;
    if (sigsetjmp(out, 1)) return message;
    memory::begin_launch(*launch);
    unsigned group[3];
    for (group[2] = 0; group[2] < launch->groups[2]; group[2]++)
        for (group[1] = 0; group[1] < launch->groups[1]; group[1]++)
            for (group[0] = 0; group[0] < launch->groups[0]; group[0]++) run_group(group);
    return nullptr;
}
