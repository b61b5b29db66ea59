// What kernels ask of runtime.cpp. A site is one place in the source: file, line, and an address.
#pragma once

struct ShimSite {
    const char *file;
    unsigned line;
};
#define SHIM_SITE ([]() { static constexpr ShimSite site{__FILE__, __LINE__}; return &site; }())

// What the lanes of a SIMD-group hand each other: a value each, of those that take part.
struct ShimExchange {
    unsigned long values[64][2];
    unsigned long result[2];
    unsigned long lanes;  // a bit each
    bool reduced;
};

// A thread's place; `index` counts in its threadgroup, `width` is that of a SIMD-group.
struct ShimPlace {
    unsigned local[3], group[3], groups[3], threads[3], index, lane, width;
};

extern "C" {
[[noreturn]] void shim_fault(const char *format, ...);
void shim_barrier(const ShimSite *site);
void shim_simdgroup_barrier(const ShimSite *site);
ShimExchange *shim_exchange(const void *value, unsigned long nbytes, const ShimSite *site);
void shim_atomic(void *word);
extern const ShimPlace *shim_place;
}
