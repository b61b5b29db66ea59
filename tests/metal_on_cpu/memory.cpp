// What kernels may touch. Those compiled to be checked call here before every load and store.
//
// Memory must be among what the host declared. And where two threads touch the same bytes, one of
// them writing, there must be a barrier between: the threadgroup's, or, if both are of one
// SIMD-group, that one's; threads of two threadgroups have none.
#include "memory.h"

#include <cstring>
#include <vector>

extern "C" __attribute__((visibility("hidden"))) char __ehdr_start[], _end[];

namespace {

enum Who : uint8_t { ONE, LANES, SEVERAL };  // threads: one, of one SIMD-group, of several

// The last access of a kind to a word.
struct Access {
    uint32_t group, round, barriers;
    uint16_t thread;
    uint8_t bytes;  // of the word, a bit each
    Who who;
};
enum Kind { READ, WRITE, ATOMIC };
struct Word {
    Access last[3];  // of each kind
};
struct Range {
    uintptr_t begin, end, lowest, highest;  // declared, and rounded to 16 bytes
    bool writes;
    std::vector<Word> words;
};

uintptr_t stacks_begin, stacks_end, image_begin, image_end, arguments_begin, arguments_end;
Range shared;
std::vector<Range> ranges;
bool declared;
unsigned group, first_group, lanes;  // groups are numbered from 1, over all launches

// Whether all that made an access are of this thread's SIMD-group, and its barrier came after.
bool passed(const Access &access, unsigned me) {
    return access.who != SEVERAL && access.thread / lanes == me / lanes &&
           access.barriers < memory::simd_barriers[me / lanes];
}

bool conflicts(const Access &access, uint8_t bytes, unsigned me, bool in_shared) {
    if (!(access.bytes & bytes)) return false;
    if (access.group != group) return !in_shared && access.group >= first_group;
    if (access.round != memory::round || (access.who == ONE && access.thread == me)) return false;
    return !passed(access, me);
}

// Earlier accesses that still matter become one with it.
void note(Access &access, uint8_t bytes, unsigned me) {
    Who who = ONE;
    if (access.group == group && access.round == memory::round && !passed(access, me)) {
        if (access.thread != me || access.who != ONE)
            who = access.who != SEVERAL && access.thread / lanes == me / lanes ? LANES : SEVERAL;
        bytes |= access.bytes;
    }
    access = {group, memory::round, memory::simd_barriers[me / lanes], (uint16_t)me, bytes, who};
}

const char *const TOUCHES[] = {"reads", "writes", "counts in"}, *const TOUCHED[] = {"read", "wrote", "counted in"};

[[noreturn]] void fault(const Range &range, const void *word, const Access &access, unsigned me, Kind kind, Kind other) {
    shim_fault("thread %u %s what %sthread %u of %s %s, and no barrier is between; byte %ld of %s", me, TOUCHES[kind],
               access.who == ONE ? "" : "others and ", access.thread, access.group == group ? "its group" : "another group",
               TOUCHED[other], (long)((uintptr_t)word - range.begin),
               &range == &shared ? "threadgroup memory" : "a buffer");
}

// Words that a second thread is about to write. That is no fault if it writes what is there, which is
// seen when the next access is checked.
struct Doubtful {
    const Range *range;
    const uint32_t *word;
    uint32_t before;
    unsigned thread;
    Access access;
} doubtful[5];
int doubts;

void settle() {
    for (; doubts > 0; doubts--) {
        const Doubtful &doubt = doubtful[doubts - 1];
        if (*doubt.word != doubt.before) fault(*doubt.range, doubt.word, doubt.access, doubt.thread, WRITE, WRITE);
    }
}

void touch(Range &range, uintptr_t address, unsigned nbytes, Kind kind) {
    unsigned me = shim_place->index;
    uintptr_t end = address + nbytes;
    for (uintptr_t at = address & ~(uintptr_t)3; at < end; at += 4) {
        Word &word = range.words[(at - range.lowest) / 4];
        uint8_t bytes = 15;
        if (at < address) bytes &= 15 << (address - at);
        if (at + 4 > end) bytes &= 15 >> (at + 4 - end);
        for (Kind other : {READ, WRITE, ATOMIC}) {
            const Access &access = word.last[other];
            if ((kind == other && kind != WRITE) || !conflicts(access, bytes, me, &range == &shared)) continue;
            if (kind != WRITE || other != WRITE) fault(range, (const void *)at, access, me, kind, other);
            doubtful[doubts++] = {&range, (const uint32_t *)at, *(const uint32_t *)at, me, access};
        }
        note(word.last[kind], bytes, me);
    }
}

Range *find(uintptr_t address, uintptr_t end, bool writes) {
    for (Range &range : ranges)
        if (address >= range.begin && end <= range.end && (range.writes || !writes)) return &range;
    if (!writes)
        for (Range &range : ranges)
            if (address >= range.lowest && end <= range.highest) return &range;
    return nullptr;
}

void check(uintptr_t address, unsigned nbytes, Kind kind) {
    uintptr_t end = address + nbytes;
    bool writes = kind != READ;
    if (doubts) settle();
    if (address >= stacks_begin && end <= stacks_end) return;
    if (address >= shared.begin && end <= shared.end) return touch(shared, address, nbytes, kind);
    if (address >= (uintptr_t)__ehdr_start && end <= (uintptr_t)_end) return;  // the shim itself
    if (!writes && address >= image_begin && end <= image_end) return;
    if (!writes && address >= arguments_begin && end <= arguments_end) return;
    if (!declared) return;
    if (Range *range = find(address, end, writes)) {
        if (range->writes) touch(*range, address, nbytes, kind);
        return;
    }
    const Range *near = nullptr;
    intptr_t least = INTPTR_MAX;
    for (const Range &range : ranges) {
        intptr_t away = address < range.begin ? range.begin - address : address >= range.end ? address - range.end + 1 : 0;
        if (away < least) least = away, near = &range;
    }
    if (!near) shim_fault("thread %u touches memory, and the host declared none", shim_place->index);
    shim_fault("thread %u %s %u bytes at %+ld of %s%lu bytes", shim_place->index, writes ? "writes" : "reads", nbytes,
               (long)(address - near->begin), near->writes || !writes ? "" : "read-only ",
               (unsigned long)(near->end - near->begin));
}

Range range_of(uintptr_t begin, uintptr_t end, bool writes) {
    Range range = {begin, end, begin & ~(uintptr_t)15, (end + 15) & ~(uintptr_t)15, writes, {}};
    if (writes) range.words.resize((range.highest - range.lowest) / 4);
    return range;
}

}  // namespace

unsigned memory::simd_barriers[1024], memory::round;

void memory::allow_stacks(char *begin, size_t nbytes) {
    stacks_begin = (uintptr_t)begin;
    stacks_end = stacks_begin + nbytes;
}

void memory::begin_launch(const ShimLaunch &launch) {
    image_begin = launch.image_begin;
    image_end = launch.image_end;
    arguments_begin = (uintptr_t)launch.arguments;
    arguments_end = arguments_begin + launch.argument_nbytes;
    first_group = group + 1;
    doubts = 0;
    lanes = launch.simd;
    shared = range_of((uintptr_t)launch.shared_begin, (uintptr_t)launch.shared_end, true);
    declared = launch.range_count >= 0;
    ranges.clear();
    for (int64_t i = 0; i < launch.range_count; i++) {
        const ShimRange &range = launch.ranges[i];
        ranges.push_back(range_of(range.begin, range.end, range.writes));
    }
}

void memory::end_group() { settle(); }

void memory::begin_group(const ShimLaunch &launch, unsigned simdgroups) {
    memset(launch.shared_begin, 0xff, launch.shared_end - launch.shared_begin);  // NaN
    memset(simd_barriers, 0, simdgroups * sizeof *simd_barriers);
    round = 0;
    group++;
}

// Clang calls these before accesses (-fsanitize-coverage=trace-loads,trace-stores).
#define TRACE(SIZE) \
    extern "C" void __sanitizer_cov_load##SIZE(void *p) { check((uintptr_t)p, SIZE, READ); } \
    extern "C" void __sanitizer_cov_store##SIZE(void *p) { check((uintptr_t)p, SIZE, WRITE); }
TRACE(1)
TRACE(2)
TRACE(4)
TRACE(8)
TRACE(16)
#undef TRACE

extern "C" void shim_atomic(void *word) { check((uintptr_t)word, 4, ATOMIC); }

// And these where it finds undefined behaviour (-fsanitize=alignment and others). The layouts of what
// it passes are those of compiler-rt's ubsan_handlers.h, LLVM 19.
struct Source {
    const char *file;
    uint32_t line, column;
};
struct Type {
    uint16_t kind, info;
    char name[1];
};
struct TypeMismatch {
    Source source;
    const Type *type;
    uint8_t log_alignment, kind;
};

extern "C" void __ubsan_handle_type_mismatch_v1_abort(const TypeMismatch *data, uintptr_t pointer) {
    shim_fault("%s:%u: address %#lx for type %s, which is aligned to %u bytes", data->source.file, data->source.line,
               (unsigned long)pointer, data->type->name, 1u << data->log_alignment);
}
#define UNDEFINED(NAME, ...) \
    extern "C" void __ubsan_handle_##NAME##_abort(const Source *source __VA_OPT__(, ) __VA_ARGS__)
UNDEFINED(divrem_overflow, uintptr_t, uintptr_t) {
    shim_fault("%s:%u: a division by zero", source->file, source->line);
}
UNDEFINED(out_of_bounds, uintptr_t index) {
    shim_fault("%s:%u: index %ld is out of bounds", source->file, source->line, (long)index);
}
