// entry attention_matrix, threads 128 1 1
#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(fast)
#include <metal_simdgroup_matrix>
template<typename T, int Cols, int Rows, typename V>
void _slang_simdgroup_fill(thread simdgroup_matrix<T, Cols, Rows>* dest, V val) {
    *dest = make_filled_simdgroup_matrix<T, Cols, Rows>(T(val));
}

template<typename Matrix, typename T>
Matrix _slang_simdgroup_load(const device T* src, ulong elements_per_row) {
    Matrix result;
    simdgroup_load(result, src, elements_per_row);
    return result;
}

template<typename Matrix, typename T>
Matrix _slang_simdgroup_load_transpose(const device T* src, ulong elements_per_row) {
    Matrix result;
    simdgroup_load(result, src, elements_per_row, ulong2(0), true);
    return result;
}

template<typename Matrix, typename T>
Matrix _slang_simdgroup_load(const threadgroup T* src, ulong elements_per_row) {
    Matrix result;
    simdgroup_load(result, src, elements_per_row);
    return result;
}

template<typename Matrix, typename T>
Matrix _slang_simdgroup_load_transpose(const threadgroup T* src, ulong elements_per_row) {
    Matrix result;
    simdgroup_load(result, src, elements_per_row, ulong2(0), true);
    return result;
}

simdgroup_matrix<float, 8, 8> linalg_coopMatMulAdd(simdgroup_matrix<half, 8, 8> matA, simdgroup_matrix<half, 8, 8> matB, simdgroup_matrix<float, 8, 8> matC)
{
    simdgroup_matrix<float, 8, 8> t1;
    simdgroup_multiply_accumulate(t1, matA, matB, matC);
    return t1;
}

struct Eight
{
    float4 low;
    float4 high;
};

Eight Eight_make(float4 low, float4 high)
{
    Eight t1;
    t1.low = low;
    t1.high = high;
    return t1;
}

uint rounded(float2 values)
{
    return as_type<uint>(half2(clamp(values, float2(-65504.0), float2(65504.0))));
}

uint4 packed_1(const Eight thread* eight)
{
    uint t1 = rounded(eight->low.xy);
    uint t2 = rounded(eight->low.zw);
    uint t3 = rounded(eight->high.xy);
    uint t4 = rounded(eight->high.zw);
    return uint4(t1, t2, t3, t4);
}

uint4 HalfCache_fetch(uchar device* cache, uint size, uint run)
{
    return (*(const device uint4*)(cache + 16ULL * ulong(run)));
}

uint4 HalfCache_load_halves(uchar device* cache, uint size, uint run)
{
    return HalfCache_fetch(cache, size, run);
}

constant uint fc_HALVES [[function_constant(0)]];
constant bool HALVES = is_function_constant_defined(fc_HALVES) ? fc_HALVES != 0U : false;
uint2 pack_halves(float4 v)
{
    float4 t1 = clamp(v, float4(-65504.0), float4(65504.0));
    uint t2 = as_type<uint>(half2(t1.xz));
    uint t3 = as_type<uint>(half2(t1.yw));
    return uint2(t2, t3);
}

struct Step
{
    uint past;
    uint tokens;
    uint rows;
    uint drawn;
    uint seed;
    float temperature;
    uint top_k;
    float top_p;
    float min_p;
    array<uint, 3> padding;
};

struct ManyAttentionArgs
{
    float device* queries;
    uchar device* key_cache;
    uchar device* value_cache;
    Step device* step;
    float device* result;
    uchar device* halves;
    uint heads_kv;
    uint group;
    uint capacity;
    uint tokens;
    float scale;
};

struct EntryPointParams
{
    ManyAttentionArgs a;
};

struct Moved
{
    array<uint4, 3> keys;
    array<uint4, 3> values;
};

struct KernelContext
{
    EntryPointParams constant* given;
    array<uint4, 576> threadgroup* tile;
    array<float4, 288> threadgroup* scores;
    uint simd_lane;
    uint threadgroup* rising;
    array<uint4, 160> threadgroup* shares;
};

[[kernel]] void attention_matrix(uint thread_index [[thread_index_in_threadgroup]], uint3 group [[threadgroup_position_in_grid]], uint _builtinWaveLaneIndex_0 [[thread_index_in_simdgroup]], EntryPointParams constant* given [[buffer(0)]])
{
    Moved t1;
    Moved t2;
    KernelContext kernelContext;
    kernelContext.given = given;
    threadgroup array<uint4, 576> tile;
    kernelContext.tile = &tile;
    threadgroup array<float4, 288> scores;
    kernelContext.scores = &scores;
    threadgroup uint rising;
    kernelContext.rising = &rising;
    threadgroup array<uint4, 160> shares;
    kernelContext.shares = &shares;
    kernelContext.simd_lane = _builtinWaveLaneIndex_0;
    uint rows = given->a.tokens * given->a.group;
    uint head = group.y;
    uint first_row = ((rows - 1U) / 32U - group.x) * 32U;
    uint t3 = min(first_row + 32U, given->a.step->tokens * given->a.group);
    if(first_row >= t3)
    {
        return;
    }
    uint past = given->a.step->past;
    uint t4 = t3 - 1U;
    uint length = past + (t4 / given->a.group) + 1U;
    for(uint i = thread_index; i < 256U; i += 128U)
    {
        uint t5 = min(first_row + i / 8U, t4);
        ManyAttentionArgs t6 = given->a;
        uint t7 = t5 / given->a.group;
        uint t8 = (t7 * given->a.heads_kv + head) * given->a.group;
        uint t9 = t5 % given->a.group;
        uint t10 = i % 8U;
        float device* from = t6.queries + (t8 + t9) * 64U + t10 * 8U;
        ManyAttentionArgs t11 = given->a;
        float4 t12 = (*(const device float4*)(from));
        float4 t13 = float4(t11.scale) * t12;
        ManyAttentionArgs t14 = given->a;
        float4 t15 = (*(const device float4*)(from + 4));
        Eight t16 = Eight_make(t13, float4(t14.scale) * t15);
        uint4 t17 = packed_1(&t16);
        (*kernelContext.tile)[i / 8U * 9U + t10] = t17;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint subgroup = thread_index / 32U;
    uint lane = thread_index % 32U;
    simdgroup_matrix<half, 8, 8> q[8];
    simdgroup_matrix<float, 8, 8> sums[8];
    #pragma unroll
    for(uint k = 0U; k < 8U; k++)
    {
        simdgroup_matrix<half, 8, 8> t18 = _slang_simdgroup_load<simdgroup_matrix<half, 8, 8>>((const threadgroup half*)&(*(kernelContext.tile))[(subgroup * 8U * 9U + k * 8U / 8U)], 8 * (9U));
        q[k] = t18;
        simdgroup_matrix<float, 8, 8> t19;
        _slang_simdgroup_fill((&t19), (0.0));
        sums[k] = t19;
    }
    uint t20 = subgroup * 8U;
    uint line = t20 + lane / 4U;
    uint part = lane % 4U;
    uint t21 = first_row + line;
    uint t22 = past + (t21 / given->a.group);
    ManyAttentionArgs t23 = given->a;
    {
        Moved t24;
        uint t25 = t23.heads_kv * t23.capacity * 64U;
        #pragma unroll
        for(uint i = 0U; i < 2U; i++)
        {
            uint t26 = min(thread_index + i * 128U, 255U);
            uint run = (head * t23.capacity + min(t26 / 8U, length - 1U)) * 8U + t26 % 8U;
            uint4 t27 = HalfCache_load_halves(t23.key_cache, t25, run);
            t24.keys[i] = t27;
            uint4 t28 = HalfCache_load_halves(t23.value_cache, t25, run);
            t24.values[i] = t28;
        }
        t1 = t24;
    }
    Moved moved = t1;
    float reference = -1.00000001504746622e+30;
    uint base = 0U;
    float weight = 0.0;
    while(base < length)
    {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        {
            #pragma unroll
            for(uint i = 0U; i < 2U; i++)
            {
                uint t29 = min(thread_index + i * 128U, 255U);
                uint place = t29 / 8U * 9U + t29 % 8U;
                (*kernelContext.tile)[place] = moved.keys[i];
                (*kernelContext.tile)[288U + place] = moved.values[i];
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        uint t30 = base + 32U;
        ManyAttentionArgs t31 = given->a;
        {
            Moved t32;
            uint t33 = t31.heads_kv * t31.capacity * 64U;
            #pragma unroll
            for(uint i_1 = 0U; i_1 < 2U; i_1++)
            {
                uint t34 = min(thread_index + i_1 * 128U, 255U);
                uint run_1 = (head * t31.capacity + min(t30 + t34 / 8U, length - 1U)) * 8U + t34 % 8U;
                uint4 t35 = HalfCache_load_halves(t31.key_cache, t33, run_1);
                t32.keys[i_1] = t35;
                uint4 t36 = HalfCache_load_halves(t31.value_cache, t33, run_1);
                t32.values[i_1] = t36;
            }
            t2 = t32;
        }
        #pragma unroll
        for(uint j = 0U; j < 4U; j++)
        {
            simdgroup_matrix<float, 8, 8> t37;
            _slang_simdgroup_fill((&t37), (0.0));
            simdgroup_matrix<float, 8, 8> s = t37;
            #pragma unroll
            for(uint k = 0U; k < 8U; k++)
            {
                simdgroup_matrix<half, 8, 8> t38 = _slang_simdgroup_load_transpose<simdgroup_matrix<half, 8, 8>>((const threadgroup half*)&(*(kernelContext.tile))[(j * 8U * 9U + k * 8U / 8U)], 8 * (9U));
                s = linalg_coopMatMulAdd(q[k], t38, s);
            }
            simdgroup_store((s), (threadgroup float*)&(*(kernelContext.scores))[(t20 * 9U + j * 8U / 4U)], 4 * (9U));
        }
        simdgroup_barrier(mem_flags::mem_threadgroup);
        array<float4, 2> score;
        uint t39 = part * 2U;
        uint t40 = base + t39 * 4U;
        float most = reference;
        #pragma unroll
        for(uint i_2 = 0U; i_2 < 2U; i_2++)
        {
            score[i_2] = (*kernelContext.scores)[line * 9U + t39 + i_2];
            #pragma unroll
            for(uint e = 0U; e < 4U; e++)
            {
                float t41 = ((t40 + 4U * i_2 + e) <= t22) ? (score[i_2][e]) : (-1.00000001504746622e+30);
                score[i_2][e] = t41;
                most = max(most, t41);
            }
        }
        float most_1 = most;
        #pragma unroll
        for(uint i_3 = 1U; i_3 <= 2U; i_3 *= 2U)
        {
            float t42 = simd_shuffle((most_1), ushort(int((kernelContext.simd_lane) ^ i_3)));
            most_1 = max(most_1, t42);
        }
        if(most_1 > (reference + 10.0))
        {
            *kernelContext.rising = base + 1U;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        float weight_1;
        if((*kernelContext.rising) == (base + 1U))
        {
            float keep = exp2(reference - most_1);
            float weight_2 = weight * keep;
            #pragma unroll
            for(uint k = 0U; k < 8U; k++)
            {
                if(base == 0U)
                {
                    continue;
                }
                simdgroup_barrier(mem_flags::mem_threadgroup);
                uint t43 = t20 * 9U;
                simdgroup_store((sums[k]), (threadgroup float*)&(*(kernelContext.scores))[(t43)], 4 * (9U));
                simdgroup_barrier(mem_flags::mem_threadgroup);
                #pragma unroll
                for(uint i_4 = 0U; i_4 < 1U; i_4++)
                {
                    (*kernelContext.scores)[line * 9U + part + i_4] = (*kernelContext.scores)[line * 9U + part + i_4] * float4(keep);
                }
                simdgroup_barrier(mem_flags::mem_threadgroup);
                simdgroup_matrix<float, 8, 8> t44 = _slang_simdgroup_load<simdgroup_matrix<float, 8, 8>>((const threadgroup float*)&(*(kernelContext.scores))[(t43)], 4 * (9U));
                sums[k] = t44;
            }
            reference = most_1;
            weight_1 = weight_2;
        }
        else
        {
            weight_1 = weight;
        }
        weight = weight_1;
        #pragma unroll
        for(uint i_4 = 0U; i_4 < 1U; i_4++)
        {
            Eight share;
            #pragma unroll
            for(uint e = 0U; e < 4U; e++)
            {
                uint t45 = 2U * i_4;
                share.low[e] = exp2(score[t45][e] - reference);
                share.high[e] = exp2(score[t45 + 1U][e] - reference);
            }
            Eight t46 = share;
            uint4 t47 = packed_1(&t46);
            float2 t48 = float2(as_type<half2>(t47.x));
            float2 t49 = t48 + (float2(as_type<half2>(t47.y)));
            float2 t50 = t49 + (float2(as_type<half2>(t47.z)));
            float2 sum = t50 + (float2(as_type<half2>(t47.w)));
            weight = weight + (sum.x + sum.y);
            (*kernelContext.shares)[line * 5U + t39 / 2U + i_4] = t47;
        }
        simdgroup_barrier(mem_flags::mem_threadgroup);
        #pragma unroll
        for(uint e = 0U; e < 4U; e++)
        {
            uint t51 = e * 8U;
            simdgroup_matrix<half, 8, 8> t52 = _slang_simdgroup_load<simdgroup_matrix<half, 8, 8>>((const threadgroup half*)&(*(kernelContext.shares))[(t20 * 5U + t51 / 8U)], 8 * (5U));
            #pragma unroll
            for(uint k = 0U; k < 8U; k++)
            {
                simdgroup_matrix<half, 8, 8> t53 = _slang_simdgroup_load<simdgroup_matrix<half, 8, 8>>((const threadgroup half*)&(*(kernelContext.tile))[((32U + t51) * 9U + k * 8U / 8U)], 8 * (9U));
                simdgroup_matrix<float, 8, 8> t54 = linalg_coopMatMulAdd(t52, t53, sums[k]);
                sums[k] = t54;
            }
        }
        moved = t2;
        base = t30;
    }
    #pragma unroll
    for(uint i = 1U; i <= 2U; i *= 2U)
    {
        weight = weight + (simd_shuffle((weight), ushort(int((kernelContext.simd_lane) ^ i))));
    }
    uint t55 = t21 / given->a.group;
    uint t56 = (t55 * given->a.heads_kv + head) * given->a.group;
    uint t57 = t21 % given->a.group;
    uint t58 = (t56 + t57) * 64U + part * 4U;
    #pragma unroll
    for(uint k = 0U; k < 8U; k++)
    {
        simdgroup_barrier(mem_flags::mem_threadgroup);
        simdgroup_store((sums[k]), (threadgroup float*)&(*(kernelContext.scores))[(t20 * 9U)], 4 * (9U));
        simdgroup_barrier(mem_flags::mem_threadgroup);
        #pragma unroll
        for(uint i = 0U; i < 1U; i++)
        {
            if(t21 >= rows || !((part + i) < 2U))
            {
                continue;
            }
            uint place_1 = t58 + k * 8U + 4U * i;
            float4 four = (*kernelContext.scores)[line * 9U + part + i] / float4(weight);
            *(device float4*)(given->a.result + place_1) = (four);
            if(HALVES)
            {
                uchar device* t59 = given->a.halves + 2ULL * ulong(place_1);
                uint2 t60 = pack_halves(four);
                *(device uint2*)(t59) = (t60);
            }
        }
    }
}

