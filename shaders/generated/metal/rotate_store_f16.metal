// entry rotate_store, threads constant 0
#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(fast)
constant uint fc_HEAD_DIM [[function_constant(1)]];
constant uint HEAD_DIM = is_function_constant_defined(fc_HEAD_DIM) ? fc_HEAD_DIM : 128U;
constant uint fc_INTERLEAVED [[function_constant(2)]];
constant bool INTERLEAVED = is_function_constant_defined(fc_INTERLEAVED) ? fc_INTERLEAVED != 0U : true;
constant uint fc_ROTATED [[function_constant(3)]];
constant bool ROTATED = is_function_constant_defined(fc_ROTATED) ? fc_ROTATED != 0U : true;
constant uint fc_SCALED [[function_constant(5)]];
constant bool SCALED = is_function_constant_defined(fc_SCALED) ? fc_SCALED != 0U : false;
float2 turn(float angle)
{
    uint bits = (as_type<uint>((angle)));
    uint mantissa = (bits & 8388607U) | 8388608U;
    uint _S1 = min(150U - min(bits >> 23U, 150U), 63U);
    uint2 scaled;
    if(_S1 == 0U)
    {
        scaled = uint2(683565275U, 2475754826U);
    }
    else
    {
        if(_S1 < 32U)
        {
            scaled = uint2(683565275U >> _S1, (2475754826U >> _S1) | (683565275U << (32U - _S1)));
        }
        else
        {
            scaled = uint2(0U, 683565275U >> (_S1 - 32U));
        }
    }
    uint low = (scaled.y) >> 16U;
    uint turns = mantissa * scaled.x + (((mantissa >> 12U) * low) >> 4U) + (((mantissa & 4095U) * low) >> 16U);
    uint quarter = (turns + 536870912U) >> 30U;
    float x = float(int(turns - (quarter << 30U))) * 1.46291811997656396e-09;
    float y = x * x;
    float s = x * (1.0 + y * (-0.1666666716337204 + y * (0.00833333376795053 + y * (-0.0001984127011383 + y * 2.75573188446287531e-06))));
    float c = 1.0 + y * (-0.5 + y * (0.0416666679084301 + y * (-0.00138888892251998 + y * 0.00002480158764229)));
    float c_1;
    float s_1;
    if((quarter & 1U) != 0U)
    {
        c_1 = - s;
        s_1 = c;
    }
    else
    {
        c_1 = c;
        s_1 = s;
    }
    float2 _S2;
    if((quarter & 2U) != 0U)
    {
        _S2 = float2(- c_1, - s_1);
    }
    else
    {
        _S2 = float2(c_1, s_1);
    }
    return _S2;
}

constant uint fc_EACH [[function_constant(6)]];
constant uint EACH = is_function_constant_defined(fc_EACH) ? fc_EACH : 1U;
constant uint fc_NORMED [[function_constant(4)]];
constant bool NORMED = is_function_constant_defined(fc_NORMED) ? fc_NORMED != 0U : false;
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

struct RotateStoreArgs
{
    float device* queries;
    float device* keys;
    float device* values;
    float device* query_norm;
    float device* key_norm;
    float device* frequencies;
    float device* factors;
    Step device* step;
    float device* rotated;
    uchar device* key_cache;
    uchar device* value_cache;
    uint heads;
    uint heads_kv;
    uint capacity;
    float epsilon;
};

struct EntryPointParams
{
    RotateStoreArgs a;
};

struct KernelContext
{
    EntryPointParams constant* given;
    uint simd_lanes;
    array<float, 256> threadgroup* sums_of_subgroups;
    array<float, 256> threadgroup* row;
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
    for(uint i = thread_1 % t1; i < t3; i += t1)
    {
        all = all + (*kernelContext->sums_of_subgroups)[i];
    }
    return simd_sum(all);
}

float workgroup_sum(float value, uint thread_1, uint threads, KernelContext thread* kernelContext)
{
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return workgroup_sum_once(value, thread_1, threads, kernelContext);
}

constant uint fc_THREADS [[function_constant(0)]];
constant uint THREADS = is_function_constant_defined(fc_THREADS) ? fc_THREADS : 64U;
uint rounded(float2 values)
{
    return as_type<uint>(half2(clamp(values, float2(-65504.0), float2(65504.0))));
}

void HalfCache_store(uchar device* cache, uint size, uint run, float4 values, float largest)
{
    uint device* to = (uint device*)(cache) + 2U * run;
    uint device* t1 = to + 0;
    uint t2 = rounded(values.xy);
    *t1 = t2;
    uint device* t3 = to + 1;
    uint t4 = rounded(values.zw);
    *t3 = t4;
}

[[kernel]] void rotate_store(uint thread_index [[thread_index_in_threadgroup]], uint3 group [[threadgroup_position_in_grid]], uint _builtinWaveLaneCount_0 [[threads_per_simdgroup]], EntryPointParams constant* given [[buffer(0)]])
{
    KernelContext kernelContext;
    kernelContext.given = given;
    threadgroup array<float, 256> sums_of_subgroups;
    kernelContext.sums_of_subgroups = &sums_of_subgroups;
    threadgroup array<float, 256> row;
    kernelContext.row = &row;
    kernelContext.simd_lanes = _builtinWaveLaneCount_0;
    uint token = group.y;
    if(token >= (given->a.step->tokens))
    {
        return;
    }
    uint t1 = INTERLEAVED ? 2U * thread_index : thread_index;
    uint t2 = INTERLEAVED ? 2U * thread_index + 1U : thread_index + HEAD_DIM / 2U;
    uint t3 = given->a.heads_kv * given->a.capacity * HEAD_DIM;
    float2 t4 = float2(0.0);
    bool key = ROTATED && thread_index < (HEAD_DIM / 2U);
    float2 unit;
    if(key)
    {
        float frequency = *(given->a.frequencies + thread_index);
        float frequency_1 = SCALED ? frequency / *(given->a.factors + thread_index) : frequency;
        unit = turn(float(given->a.step->past + token) * frequency_1);
    }
    else
    {
        unit = t4;
    }
    uint t5 = group.x;
    uint t6 = min((t5 + 1U) * EACH, given->a.heads + 2U * given->a.heads_kv);
    for(uint slot = t5 * EACH; slot < t6; slot++)
    {
        bool query = slot < (given->a.heads);
        key = !query && slot < (given->a.heads + given->a.heads_kv);
        uint head = query ? slot : (key ? slot - given->a.heads : slot - given->a.heads - given->a.heads_kv);
        float device* t7 = query ? given->a.queries : (key ? given->a.keys : given->a.values);
        uint t8 = query ? given->a.heads : given->a.heads_kv;
        float device* from = t7 + (token * t8 + head) * HEAD_DIM;
        bool t9 = thread_index < (HEAD_DIM / 2U);
        float2 pair = t9 ? float2(*(from + t1), *(from + t2)) : t4;
        bool t10 = NORMED && (query || key);
        float2 pair_1;
        if(t10)
        {
            float t11 = workgroup_sum(dot(pair, pair), thread_index, THREADS, &kernelContext);
            float inverse = 1.0 / sqrt(t11 / float(HEAD_DIM) + given->a.epsilon);
            float device* weight = query ? given->a.query_norm : given->a.key_norm;
            pair_1 = t9 ? pair * (float2(inverse) * float2(*(weight + t1), *(weight + t2))) : pair;
        }
        else
        {
            pair_1 = pair;
        }
        bool t12 = ROTATED && (query || key);
        float2 pair_2;
        if(t12)
        {
            float t13 = pair_1.x;
            float t14 = unit.x;
            float t15 = pair_1.y;
            float t16 = unit.y;
            pair_2 = float2(t13 * t14 - t15 * t16, t15 * t14 + t13 * t16);
        }
        else
        {
            pair_2 = pair_1;
        }
        if(query)
        {
            float device* to = given->a.rotated + (token * given->a.heads + head) * HEAD_DIM;
            if(t9)
            {
                *(to + t1) = pair_2.x;
                *(to + t2) = pair_2.y;
            }
            continue;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if(t9)
        {
            (*kernelContext.row)[t1] = pair_2.x;
            (*kernelContext.row)[t2] = pair_2.y;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if(thread_index >= (HEAD_DIM / 4U))
        {
            continue;
        }
        uint run = (head * given->a.capacity + given->a.step->past + token) * HEAD_DIM / 4U + thread_index;
        uint t17 = 4U * thread_index;
        float4 four = float4((*kernelContext.row)[t17], (*kernelContext.row)[t17 + 1U], (*kernelContext.row)[t17 + 2U], (*kernelContext.row)[t17 + 3U]);
        uchar device* t18 = key ? given->a.key_cache : given->a.value_cache;
        HalfCache_store(t18, t3, run, four, 0.0);
    }
}

