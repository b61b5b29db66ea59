// entry attention_merge, threads constant 0
#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(fast)
constant uint fc_THREADS [[function_constant(0)]];
constant uint THREADS = is_function_constant_defined(fc_THREADS) ? fc_THREADS : 256U;
constant uint fc_HEAD_DIM [[function_constant(1)]];
constant uint HEAD_DIM = is_function_constant_defined(fc_HEAD_DIM) ? fc_HEAD_DIM : 128U;
constant uint SLICES = THREADS / (HEAD_DIM / 4U);
constant uint fc_SPLITS [[function_constant(2)]];
constant uint SPLITS = is_function_constant_defined(fc_SPLITS) ? fc_SPLITS : 16U;
constant uint fc_ROUNDED [[function_constant(3)]];
constant bool ROUNDED = is_function_constant_defined(fc_ROUNDED) ? fc_ROUNDED != 0U : false;
struct Int8Activations
{
    uchar device* quants;
    array<uchar device*, 2> halves;
};

Int8Activations Int8Activations_make(uchar device* made, uint tokens, uint columns)
{
    Int8Activations t1;
    t1.quants = made;
    ulong t2 = ulong(tokens) * ulong(columns);
    uchar device* t3 = made + t2;
    t1.halves[0] = t3;
    t1.halves[1] = t3 + t2 / 4ULL;
    return t1;
}

struct AttentionMergeArgs
{
    float device* partial;
    float device* result;
    uchar device* rounded;
    uint heads_kv;
    uint group;
    uint capacity;
    uint tokens;
};

struct EntryPointParams
{
    AttentionMergeArgs a;
};

struct KernelContext
{
    EntryPointParams constant* given;
    uint simd_lane;
    uint simd_lanes;
    array<float4, 256> threadgroup* sums;
};

void Int8Activations_store(const Int8Activations thread* self, uint first, float4 x_1, KernelContext thread* kernelContext)
{
    float4 size = abs(x_1);
    float most = max(max(size.x, size.y), max(size.z, size.w));
    #pragma unroll
    for(uint i = 1U; i < 8U; i *= 2U)
    {
        float t1 = simd_shuffle((most), ushort(int((kernelContext->simd_lane) ^ i)));
        most = max(most, t1);
    }
    int4 t2 = int4(rint(x_1 * float4((most > 0.0) ? (127.0 / most) : 0.0)));
    int sum = t2.x + t2.y + t2.z + t2.w;
    int sum_1 = sum + (simd_shuffle((sum), ushort(int((kernelContext->simd_lane) ^ 1U))));
    int sum_2 = sum_1 + (simd_shuffle((sum_1), ushort(int((kernelContext->simd_lane) ^ 2U))));
    int other = simd_shuffle((sum_2), ushort(int((kernelContext->simd_lane) ^ 4U)));
    uint4 bytes = uint4(t2) & (uint4(255U));
    *(uint device*)(self->quants + first) = (((bytes.x) | ((bytes.y) << 8U)) | ((bytes.z) << 16U)) | ((bytes.w) << 24U);
    if((first % 32U) == 0U)
    {
        float scale = most / 127.0;
        *(device uint2*)(self->halves[0] + first / 32U * 8U) = (as_type<uint2>(float2(scale, scale * float(sum_2))));
        *(device uint2*)(self->halves[1] + first / 32U * 8U) = (as_type<uint2>(float2(scale, scale * float(other))));
    }
}

[[kernel]] void attention_merge(uint thread_index [[thread_index_in_threadgroup]], uint3 group [[threadgroup_position_in_grid]], uint _builtinWaveLaneIndex_0 [[thread_index_in_simdgroup]], uint _builtinWaveLaneCount_0 [[threads_per_simdgroup]], EntryPointParams constant* given [[buffer(0)]])
{
    KernelContext kernelContext;
    kernelContext.given = given;
    threadgroup array<float4, 256> sums;
    kernelContext.sums = &sums;
    kernelContext.simd_lane = _builtinWaveLaneIndex_0;
    kernelContext.simd_lanes = _builtinWaveLaneCount_0;
    uint row = group.x;
    uint head = group.y;
    uint rows = given->a.tokens * given->a.group;
    uint first = (head * rows + row) * SPLITS;
    packed_float2 device* t1 = (packed_float2 device*)(given->a.partial + given->a.heads_kv * rows * SPLITS * HEAD_DIM) + first;
    float most = -1.00000001504746622e+30;
    uint s = kernelContext.simd_lane;
    while(s < SPLITS)
    {
        most = max(most, (float2(*(t1 + s))).x);
        s = s + kernelContext.simd_lanes;
    }
    float t2 = simd_max(most);
    s = kernelContext.simd_lane;
    float total = 0.0;
    while(s < SPLITS)
    {
        packed_float2 device* t3 = t1 + s;
        total = total + exp2((float2(*t3)).x - t2) * (float2(*t3)).y;
        s = s + kernelContext.simd_lanes;
    }
    float total_1 = simd_sum(total);
    uint t4 = thread_index / (HEAD_DIM / 4U);
    uint t5 = thread_index % (HEAD_DIM / 4U);
    float4 t6 = float4(0.0);
    float4 sum = t6;
    for(s = 0U; s < SPLITS; s += SLICES)
    {
        uint mine = s + t4;
        if(mine < SPLITS)
        {
            float t7 = exp2((float2(*(t1 + mine))).x - t2);
            float4 t8 = (*(const device float4*)(given->a.partial + (first + mine) * HEAD_DIM + 4U * t5));
            sum = sum + float4(t7) * t8;
        }
    }
    (*kernelContext.sums)[thread_index] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if(thread_index >= (HEAD_DIM / 4U))
    {
        return;
    }
    for(uint i = 1U; i < SLICES; i++)
    {
        sum = sum + (*kernelContext.sums)[i * (HEAD_DIM / 4U) + thread_index];
    }
    uint columns = given->a.heads_kv * given->a.group * HEAD_DIM;
    uint t9 = row / given->a.group;
    uint t10 = t9 * columns;
    uint t11 = head * given->a.group;
    uint t12 = row % given->a.group;
    uint column = t10 + (t11 + t12) * HEAD_DIM + 4U * thread_index;
    float4 t13 = float4(total_1);
    *(device float4*)(given->a.result + column) = (sum / t13);
    if(ROUNDED)
    {
        Int8Activations t14 = Int8Activations_make(given->a.rounded, given->a.tokens, columns);
        float4 t15 = sum / t13;
        Int8Activations t16 = t14;
        Int8Activations_store(&t16, column, t15, &kernelContext);
    }
}

