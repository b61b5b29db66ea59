// What runtime.cpp and memory.cpp share, and what library.py hands to `shim_run`, field by field.
#pragma once
#include "runtime.h"

#include <cstddef>
#include <cstdint>

// Memory that the host declared. Reads may go on to the multiple of 16 after it, and before it.
struct ShimRange {
    uintptr_t begin, end;
    uint32_t writes;
};

struct ShimLaunch {
    void (*body)(const void *arguments, const ShimPlace *place);
    const void *arguments;
    uintptr_t argument_nbytes;
    char *shared_begin, *shared_end;  // threadgroup memory
    uintptr_t image_begin, image_end;  // of the library: constants
    const ShimRange *ranges;
    int64_t range_count;  // -1: nothing was declared, everything is allowed
    uint32_t groups[3], threads[3], simd, order;
};

namespace memory {
extern unsigned simd_barriers[1024];  // that each SIMD-group has passed
extern unsigned round;  // barriers the threadgroup has passed
void allow_stacks(char *begin, size_t nbytes);
void begin_launch(const ShimLaunch &launch);
void begin_group(const ShimLaunch &launch, unsigned simdgroups);
void end_group();
}  // namespace memory
