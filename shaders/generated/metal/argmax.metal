// entry argmax, threads 128 1 1
#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(fast)
uint key_of(float x)
{
    uint bits;
    if(x == 0.0)
    {
        bits = 0U;
    }
    else
    {
        bits = (as_type<uint>((x)));
    }
    if((bits & 2147483648U) != 0U)
    {
        bits = ~bits;
    }
    else
    {
        bits = bits | 2147483648U;
    }
    return bits;
}

bool is_finite(float x_1)
{
    return ((as_type<uint>(x_1)) & 2139095040U) != 2139095040U;
}

struct ArgmaxArgs
{
    float device* logits;
    packed_uint4 device* chunks;
    uint vocab;
    uint chunk;
};

struct EntryPointParams
{
    ArgmaxArgs args;
};

struct KernelContext
{
    EntryPointParams constant* given;
    uint simd_lanes;
    array<uint, 256> threadgroup* numbers_of_subgroups;
    array<float, 256> threadgroup* sums_of_subgroups;
};

uint workgroup_max(uint value, uint thread_1, uint threads, KernelContext thread* kernelContext)
{
    uint t1 = kernelContext->simd_lanes;
    uint most = simd_max(value);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if(simd_is_first())
    {
        uint t2 = thread_1 / t1;
        (*kernelContext->numbers_of_subgroups)[t2] = most;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint t3 = thread_1 % t1;
    uint all = 0U;
    uint t4 = threads / t1;
    for(uint i = t3; i < t4; i += t1)
    {
        all = max(all, (*kernelContext->numbers_of_subgroups)[i]);
    }
    return simd_max(all);
}

float logit_of(uint key)
{
    uint t1 = (key & 2147483648U) != 0U ? key ^ 2147483648U : ~key;
    return as_type<float>(t1);
}

float workgroup_sum_once(float value, uint thread_1, uint threads, KernelContext thread* kernelContext)
{
    uint t1 = kernelContext->simd_lanes;
    float sum = simd_sum(value);
    if(threads == (kernelContext->simd_lanes))
    {
        return sum;
    }
    if(simd_is_first())
    {
        uint t2 = thread_1 / t1;
        (*kernelContext->sums_of_subgroups)[t2] = sum;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float all = 0.0;
    uint t3 = threads / t1;
    for(uint i = thread_1 % t1; i < t3; i += t1)
    {
        all = all + (*kernelContext->sums_of_subgroups)[i];
    }
    return simd_sum(all);
}

[[kernel]] void argmax(uint thread_index [[thread_index_in_threadgroup]], uint3 group [[threadgroup_position_in_grid]], uint _builtinWaveLaneCount_0 [[threads_per_simdgroup]], EntryPointParams constant* given [[buffer(0)]])
{
    KernelContext kernelContext;
    kernelContext.given = given;
    threadgroup array<uint, 256> numbers_of_subgroups;
    kernelContext.numbers_of_subgroups = &numbers_of_subgroups;
    threadgroup array<float, 256> sums_of_subgroups;
    kernelContext.sums_of_subgroups = &sums_of_subgroups;
    kernelContext.simd_lanes = _builtinWaveLaneCount_0;
    uint t1 = group.x;
    uint first = t1 * given->args.chunk;
    uint t2 = min(first + given->args.chunk, given->args.vocab);
    uint t3 = first + thread_index;
    uint best = 0U;
    uint token = 0U;
    uint broken = 0U;
    for(uint i = t3; i < t2; i += 128U)
    {
        uint key = key_of(*(given->args.logits + i));
        int t4 = is_finite(*(given->args.logits + i)) ? 0 : 1;
        broken = broken | uint(t4);
        if(key > best)
        {
            token = i;
        }
        best = max(best, key);
    }
    uint t5 = workgroup_max(best, thread_index, 128U, &kernelContext);
    best = best == t5 ? ~token : 0U;
    uint token_1 = ~workgroup_max(best, thread_index, 128U, &kernelContext);
    uint t6 = workgroup_max(broken, thread_index, 128U, &kernelContext);
    float t7 = logit_of(t5);
    float sum = 0.0;
    for(uint i = t3; i < t2; i += 128U)
    {
        sum = sum + exp(*(given->args.logits + i) - t7);
    }
    float t8 = workgroup_sum_once(sum, thread_index, 128U, &kernelContext);
    if(thread_index == 0U)
    {
        packed_uint4 device* t9 = given->args.chunks + t1;
        best = t6 != 0U ? 4294967295U : token_1;
        *t9 = packed_uint4(uint4(t5, best, (as_type<uint>(t8)), 0U));
    }
}

