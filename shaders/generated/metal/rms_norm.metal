// entry rms_norm, threads constant 0
#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(fast)
constant uint fc_HALVES [[function_constant(2)]];
constant uint HALVES = is_function_constant_defined(fc_HALVES) ? fc_HALVES : 0U;
constant uint fc_QUANTS [[function_constant(1)]];
constant uint QUANTS = is_function_constant_defined(fc_QUANTS) ? fc_QUANTS : 0U;
float4 load_columns(float device* row, uint i, uint columns)
{
    if((columns & 3U) == 0U)
    {
        float4 _S1 = ((*(const device float4*)((row + 4U * i))));
        return _S1;
    }
    float4 loaded = float4(0.0);
    uint k = 0U;
    for(;;)
    {
        uint _S2 = 4U * i;
        if(k < (min(4U, columns - _S2)))
        {
        }
        else
        {
            break;
        }
        loaded[k] = *(row + (_S2 + k));
        k = k + 1U;
    }
    return loaded;
}

constant uint fc_THREADS [[function_constant(0)]];
constant uint THREADS = is_function_constant_defined(fc_THREADS) ? fc_THREADS : 256U;
struct RmsNormArgs
{
    float device* x;
    float device* weight;
    float device* out;
    uchar device* quants;
    uchar device* halves;
    uint columns;
    uint width;
    float epsilon;
    uint tokens;
};

struct EntryPointParams
{
    RmsNormArgs args;
};

struct KernelContext
{
    EntryPointParams constant* given;
    uint simd_lanes;
    array<float, 256> threadgroup* sums_of_subgroups;
    uint simd_lane;
};

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
    for(uint i_1 = thread_1 % t1; i_1 < t3; i_1 += t1)
    {
        all = all + (*kernelContext->sums_of_subgroups)[i_1];
    }
    return simd_sum(all);
}

void store_columns(float device* row_1, uint i_1, uint columns_1, float4 values)
{
    if((columns_1 & 3U) == 0U)
    {
        *(device float4*)(row_1 + 4U * i_1) = (values);
        return;
    }
    uint t1 = 4U * i_1;
    for(uint k_1 = 0U; k_1 < (min(4U, columns_1 - t1)); k_1++)
    {
        *(row_1 + (t1 + k_1)) = values[k_1];
    }
}

struct Int8Activations
{
    uchar device* quants;
    array<uchar device*, 2> halves;
};

Int8Activations Int8Activations_make(uchar device* made, uint tokens, uint columns_1)
{
    Int8Activations t1;
    t1.quants = made;
    ulong t2 = ulong(tokens) * ulong(columns_1);
    uchar device* t3 = made + t2;
    t1.halves[0] = t3;
    t1.halves[1] = t3 + t2 / 4ULL;
    return t1;
}

void Int8Activations_store(const Int8Activations thread* self, uint first, float4 x_1, KernelContext thread* kernelContext)
{
    float4 size = abs(x_1);
    float most = max(max(size.x, size.y), max(size.z, size.w));
    #pragma unroll
    for(uint i_1 = 1U; i_1 < 8U; i_1 *= 2U)
    {
        float t1 = simd_shuffle((most), ushort(int((kernelContext->simd_lane) ^ i_1)));
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

uint2 pack_halves(float4 v)
{
    float4 t1 = clamp(v, float4(-65504.0), float4(65504.0));
    uint t2 = as_type<uint>(half2(t1.xz));
    uint t3 = as_type<uint>(half2(t1.yw));
    return uint2(t2, t3);
}

[[kernel]] void rms_norm(uint thread_index [[thread_index_in_threadgroup]], uint3 run [[threadgroup_position_in_grid]], uint _builtinWaveLaneCount_0 [[threads_per_simdgroup]], uint _builtinWaveLaneIndex_0 [[thread_index_in_simdgroup]], EntryPointParams constant* given [[buffer(0)]])
{
    KernelContext kernelContext;
    kernelContext.given = given;
    threadgroup array<float, 256> sums_of_subgroups;
    kernelContext.sums_of_subgroups = &sums_of_subgroups;
    kernelContext.simd_lanes = _builtinWaveLaneCount_0;
    kernelContext.simd_lane = _builtinWaveLaneIndex_0;
    uint first = run.y * given->args.columns + run.x * given->args.width;
    float4 t1 = float4(0.0);
    float4 kept;
    float4 weight;
    if((4U * thread_index) < (given->args.width))
    {
        kept = load_columns(given->args.x + first, thread_index, given->args.width);
        weight = load_columns(given->args.weight, thread_index, given->args.width);
    }
    else
    {
        kept = t1;
        weight = t1;
    }
    float t2 = dot(kept, kept);
    float sum = t2;
    for(uint i_1 = thread_index + THREADS; (4U * i_1) < (given->args.width); i_1 += THREADS)
    {
        float4 x_1 = load_columns(given->args.x + first, i_1, given->args.width);
        sum = sum + dot(x_1, x_1);
    }
    float t3 = workgroup_sum_once(sum, thread_index, THREADS, &kernelContext);
    float t4 = 1.0 / sqrt(t3 / float(given->args.width) + given->args.epsilon);
    uint i_1 = thread_index;
    for(;;)
    {
        uint t5 = 4U * i_1;
        if(!(t5 < (given->args.width)))
        {
            break;
        }
        if(i_1 != thread_index)
        {
            kept = load_columns(given->args.x + first, i_1, given->args.width);
            weight = load_columns(given->args.weight, i_1, given->args.width);
        }
        float4 out = kept * float4(t4) * weight;
        store_columns(given->args.out + first, i_1, given->args.width, out);
        if(QUANTS != 0U)
        {
            Int8Activations t6 = Int8Activations_make(given->args.quants, given->args.tokens, given->args.columns);
            uint t7 = first + t5;
            Int8Activations t8 = t6;
            Int8Activations_store(&t8, t7, out, &kernelContext);
        }
        if(HALVES != 0U)
        {
            uchar device* t9 = given->args.halves + 2ULL * ulong(first + t5);
            uint2 t10 = pack_halves(out);
            *(device uint2*)(t9) = (t10);
        }
        i_1 = i_1 + THREADS;
    }
}

