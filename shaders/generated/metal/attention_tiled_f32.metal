// entry attention_tiled, threads 128 1 1
#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(fast)
constant uint fc_HEAD_DIM [[function_constant(1)]];
constant uint HEAD_DIM = is_function_constant_defined(fc_HEAD_DIM) ? fc_HEAD_DIM : 128U;
struct Eight
{
    float4 low;
    float4 high;
};

Eight Eight_make(float4 low_1, float4 high_1)
{
    Eight t1;
    t1.low = low_1;
    t1.high = high_1;
    return t1;
}

Eight FloatCache_fetch(uchar device* cache, uint size, uint run)
{
    float device* from = (float device*)(cache) + 8ULL * ulong(run);
    float4 t1 = (*(const device float4*)(from));
    float4 t2 = (*(const device float4*)(from + 4));
    return Eight_make(t1, t2);
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

struct KernelContext
{
    EntryPointParams constant* given;
    array<float4, 784> threadgroup* queries;
    array<float4, 784> threadgroup* cached;
    array<float4, 80> threadgroup* scores;
    uint simd_lane;
    array<float, 16> threadgroup* kept;
};

void keep(uint place, uchar device* cache, uint size, uint run, KernelContext thread* kernelContext)
{
    Eight eight = FloatCache_fetch(cache, size, run);
    (*kernelContext->cached)[place] = eight.low;
    (*kernelContext->cached)[place + 1U] = eight.high;
}

void load_tile(uchar device* cache, uint size, uint first_run, uint keys, uint t, KernelContext thread* kernelContext)
{
    for(uint i = t; i < (16U * HEAD_DIM / 8U); i += 128U)
    {
        uint key = i / (HEAD_DIM / 8U);
        uint run = i % (HEAD_DIM / 8U);
        keep(key * (HEAD_DIM / 4U + 1U) + 2U * run, cache, size, first_run + min(key, keys - 1U) * (HEAD_DIM / 8U) + run, kernelContext);
    }
}

float4 quarter(uint place, KernelContext thread* kernelContext)
{
    return (*kernelContext->cached)[place];
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

[[kernel]] void attention_tiled(uint thread_index [[thread_index_in_threadgroup]], uint3 group [[threadgroup_position_in_grid]], uint _builtinWaveLaneIndex_0 [[thread_index_in_simdgroup]], EntryPointParams constant* given [[buffer(0)]])
{
    KernelContext kernelContext;
    kernelContext.given = given;
    threadgroup array<float4, 784> queries;
    kernelContext.queries = &queries;
    threadgroup array<float4, 784> cached;
    kernelContext.cached = &cached;
    threadgroup array<float4, 80> scores;
    kernelContext.scores = &scores;
    threadgroup array<float, 16> kept;
    kernelContext.kept = &kept;
    kernelContext.simd_lane = _builtinWaveLaneIndex_0;
    uint rows = given->a.tokens * given->a.group;
    uint t1 = group.y;
    uint first_row = ((rows - 1U) / 16U - group.x) * 16U;
    uint t2 = min(first_row + 16U, given->a.step->tokens * given->a.group);
    if(first_row >= t2)
    {
        return;
    }
    uint past = given->a.step->past;
    uint t3 = t2 - 1U;
    uint t4 = past + (t3 / given->a.group) + 1U;
    uint t5 = given->a.heads_kv * given->a.capacity * HEAD_DIM;
    for(uint i = thread_index; i < (16U * (HEAD_DIM / 4U)); i += 128U)
    {
        uint t6 = i / (HEAD_DIM / 4U);
        uint t7 = min(first_row + t6, t3);
        ManyAttentionArgs t8 = given->a;
        uint t9 = t7 / given->a.group;
        uint t10 = (t9 * given->a.heads_kv + t1) * given->a.group;
        uint t11 = t7 % given->a.group;
        float device* from = t8.queries + (t10 + t11) * HEAD_DIM;
        uint t12 = i / (HEAD_DIM / 4U);
        uint t13 = t12 * (HEAD_DIM / 4U + 1U);
        uint t14 = i % (HEAD_DIM / 4U);
        ManyAttentionArgs t15 = given->a;
        float4 t16 = (*(const device float4*)(from + 4U * t14));
        (*kernelContext.queries)[t13 + t14] = float4(t15.scale) * t16;
    }
    uint t17 = thread_index / 16U;
    uint t18 = thread_index % 16U;
    float4 t19 = float4(0.0);
    array<float4, 6> sum;
    sum[0] = t19;
    sum[1] = t19;
    sum[2] = t19;
    sum[3] = t19;
    sum[4] = t19;
    sum[5] = t19;
    uint row = thread_index / 8U;
    uint lane = thread_index % 8U;
    uint t20 = past + ((first_row + row) / given->a.group);
    float largest = -1.00000001504746622e+30;
    float weight = 0.0;
    for(uint base = 0U; base < t4; base += 16U)
    {
        uint first_run = (t1 * given->a.capacity + base) * (HEAD_DIM / 8U);
        uint t21 = min(16U, t4 - base);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        load_tile(given->a.key_cache, t5, first_run, t21, thread_index, &kernelContext);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        array<float, 2> s;
        s[0] = 0.0;
        s[1] = 0.0;
        for(uint c = 0U; c < (HEAD_DIM / 4U); c++)
        {
            array<float4, 1> k;
            #pragma unroll
            for(uint j = 0U; j < 1U; j++)
            {
                float4 t22 = quarter((t18 + 16U * j) * (HEAD_DIM / 4U + 1U) + c, &kernelContext);
                k[j] = t22;
            }
            #pragma unroll
            for(uint i = 0U; i < 2U; i++)
            {
                float4 t23 = (*kernelContext.queries)[(t17 + 8U * i) * (HEAD_DIM / 4U + 1U) + c];
                #pragma unroll
                for(uint j_1 = 0U; j_1 < 1U; j_1++)
                {
                    s[i + j_1] = s[i + j_1] + dot(t23, k[j_1]);
                }
            }
        }
        #pragma unroll
        for(uint i = 0U; i < 2U; i++)
        {
            #pragma unroll
            for(uint j = 0U; j < 1U; j++)
            {
                uint key = t18 + 16U * j;
                float threadgroup* t24 = ((threadgroup float*)&(*(kernelContext.scores))[(((t17 + 8U * i) * 20U + key) / 4U)] + (key % 4U));
                *t24 = s[i + j];
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        load_tile(given->a.value_cache, t5, first_run, t21, thread_index, &kernelContext);
        float most = largest;
        for(uint j_1 = lane; j_1 < 16U; j_1 += 8U)
        {
            if((base + j_1) <= t20)
            {
                float threadgroup* t25 = ((threadgroup float*)&(*(kernelContext.scores))[((row * 20U + j_1) / 4U)] + (j_1 % 4U));
                most = max(most, *t25);
            }
        }
        float most_1 = most;
        #pragma unroll
        for(uint step = 1U; step <= 4U; step *= 2U)
        {
            float t26 = simd_shuffle((most_1), ushort(int((kernelContext.simd_lane) ^ step)));
            most_1 = max(most_1, t26);
        }
        float stays = exp2(largest - most_1);
        weight = weight * stays;
        for(uint key_1 = lane; key_1 < 16U; key_1 += 8U)
        {
            uint place = (row * 20U + key_1) / 4U;
            float share;
            if((base + key_1) <= t20)
            {
                float threadgroup* t27 = ((threadgroup float*)&(*(kernelContext.scores))[(place)] + (key_1 % 4U));
                share = exp2(*t27 - most_1);
            }
            else
            {
                share = 0.0;
            }
            float threadgroup* t28 = ((threadgroup float*)&(*(kernelContext.scores))[(place)] + (key_1 % 4U));
            *t28 = share;
            weight = weight + share;
        }
        if(lane == 0U)
        {
            (*kernelContext.kept)[row] = stays;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        #pragma unroll
        for(uint i_1 = 0U; i_1 < 2U; i_1++)
        {
            #pragma unroll
            for(uint j = 0U; j < 3U; j++)
            {
                if(j < ((HEAD_DIM / 4U + 15U) / 16U))
                {
                    sum[i_1 * 3U + j] = sum[i_1 * 3U + j] * float4((*kernelContext.kept)[t17 + 8U * i_1]);
                }
            }
        }
        #pragma unroll
        for(uint key_2 = 0U; key_2 < 16U; key_2 += 4U)
        {
            array<float4, 2> share_1;
            #pragma unroll
            for(uint i_2 = 0U; i_2 < 2U; i_2++)
            {
                share_1[i_2] = (*kernelContext.scores)[((t17 + 8U * i_2) * 20U + key_2) / 4U];
            }
            #pragma unroll
            for(uint j = 0U; j < 3U; j++)
            {
                if(j < ((HEAD_DIM / 4U + 15U) / 16U))
                {
                    uint t29 = t18 + 16U * j;
                    #pragma unroll
                    for(uint e = 0U; e < 4U; e++)
                    {
                        float4 t30 = quarter((key_2 + e) * (HEAD_DIM / 4U + 1U) + t29, &kernelContext);
                        #pragma unroll
                        for(uint i_3 = 0U; i_3 < 2U; i_3++)
                        {
                            sum[i_3 * 3U + j] = sum[i_3 * 3U + j] + float4(share_1[i_3][e]) * t30;
                        }
                    }
                }
            }
        }
        largest = most_1;
    }
    #pragma unroll
    for(uint c = 1U; c <= 4U; c *= 2U)
    {
        weight = weight + (simd_shuffle((weight), ushort(int((kernelContext.simd_lane) ^ c))));
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if(lane == 0U)
    {
        (*kernelContext.kept)[row] = 1.0 / weight;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    #pragma unroll
    for(uint i = 0U; i < 2U; i++)
    {
        #pragma unroll
        for(uint j_1 = 0U; j_1 < 3U; j_1++)
        {
            uint t31 = 8U * i;
            uint mine = first_row + t17 + t31;
            uint column = t18 + 16U * j_1;
            if(mine < rows && column < (HEAD_DIM / 4U))
            {
                uint t32 = mine / given->a.group;
                uint t33 = (t32 * given->a.heads_kv + t1) * given->a.group;
                uint t34 = mine % given->a.group;
                uint place_1 = (t33 + t34) * HEAD_DIM + 4U * column;
                float4 four = sum[i * 3U + j_1] * float4((*kernelContext.kept)[t17 + t31]);
                *(device float4*)(given->a.result + place_1) = (four);
                if(HALVES)
                {
                    uchar device* t35 = given->a.halves + 2ULL * ulong(place_1);
                    uint2 t36 = pack_halves(four);
                    *(device uint2*)(t35) = (t36);
                }
            }
        }
    }
}

