// entry multiply_peak, threads 128 1 1
#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(fast)
struct MultiplyPeakArgs
{
    float device* made;
    float scale;
    uint rounds;
};

struct EntryPointParams
{
    MultiplyPeakArgs args;
};

struct KernelContext
{
    EntryPointParams constant* given;
};

[[kernel]] void multiply_peak(EntryPointParams constant* given [[buffer(0)]])
{
    KernelContext kernelContext;
    kernelContext.given = given;
    array<float4, 8> sums;
    #pragma unroll
    for(uint i = 0U; i < 8U; i++)
    {
        sums[i] = float4(kernelContext.given->args.scale * float(i));
    }
    for(uint round = 0U; round < (kernelContext.given->args.rounds); round++)
    {
        uint i = 0U;
        while(i < 8U)
        {
            uint t1 = i + 1U;
            sums[i] = fma(sums[i], float4(kernelContext.given->args.scale), sums[t1 % 8U]);
            i = t1;
        }
    }
    float4 t2 = float4(0.0);
    float4 four = t2;
    #pragma unroll
    for(uint i = 0U; i < 8U; i++)
    {
        four = four + sums[i];
    }
    float all = four.x + four.y + four.z + four.w;
    if(((as_type<uint>(all)) & 2147483647U) > 2139095040U)
    {
        *(kernelContext.given->args.made + 0) = all;
    }
}

