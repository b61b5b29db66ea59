// entry read_memory, threads 256 1 1
#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(fast)
struct ReadMemoryArgs
{
    uchar device* memory;
    uint device* made;
    uint count;
    uint workgroups;
};

struct EntryPointParams
{
    ReadMemoryArgs args;
};

[[kernel]] void read_memory(uint3 at [[thread_position_in_grid]], EntryPointParams constant* given [[buffer(0)]])
{
    uint t1 = given->args.workgroups * 256U;
    uint4 t2 = uint4(int4(0));
    uint4 all = t2;
    for(uint i = at.x; i < (given->args.count); i += t1 * 4U)
    {
        array<uint4, 4> loaded;
        #pragma unroll
        for(uint k = 0U; k < 4U; k++)
        {
            uint4 t3 = (*(const device uint4*)(given->args.memory + ulong(min(i + k * t1, given->args.count - 1U)) * 16ULL));
            loaded[k] = t3;
        }
        #pragma unroll
        for(uint k_1 = 0U; k_1 < 4U; k_1++)
        {
            all = all ^ (((i + k_1 * t1) < (given->args.count)) ? (loaded[k_1]) : t2);
        }
    }
    uint folded = (((all.x) ^ (all.y)) ^ (all.z)) ^ (all.w);
    if(folded == 1511506142U)
    {
        *(given->args.made + 0) = folded;
    }
}

