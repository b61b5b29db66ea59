// entry attention, threads constant 0
#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(fast)
constant uint fc_HEAD_DIM [[function_constant(1)]];
constant uint HEAD_DIM = is_function_constant_defined(fc_HEAD_DIM) ? fc_HEAD_DIM : 128U;
constant uint fc_ROWS [[function_constant(2)]];
constant uint ROWS = is_function_constant_defined(fc_ROWS) ? fc_ROWS : 4U;
constant uint fc_THREADS [[function_constant(0)]];
constant uint THREADS = is_function_constant_defined(fc_THREADS) ? fc_THREADS : 256U;
constant uint fc_SUBGROUPS [[function_constant(11)]];
constant uint SUBGROUPS = is_function_constant_defined(fc_SUBGROUPS) ? fc_SUBGROUPS : 8U;
constant uint fc_LANES [[function_constant(3)]];
constant uint LANES = is_function_constant_defined(fc_LANES) ? fc_LANES : 8U;
constant uint fc_AHEAD [[function_constant(5)]];
constant uint AHEAD = is_function_constant_defined(fc_AHEAD) ? fc_AHEAD : 2U;
constant uint fc_INTERLEAVED [[function_constant(8)]];
constant bool INTERLEAVED = is_function_constant_defined(fc_INTERLEAVED) ? fc_INTERLEAVED != 0U : true;
constant uint fc_FRESH [[function_constant(7)]];
constant bool FRESH = is_function_constant_defined(fc_FRESH) ? fc_FRESH != 0U : false;
constant uint fc_CHUNKS [[function_constant(4)]];
constant uint CHUNKS = is_function_constant_defined(fc_CHUNKS) ? fc_CHUNKS : 2U;
half device* ByteCache_scales(uchar device* cache, uint size)
{
    return (half device*)((cache + size));
}

struct ByteCache_Bits
{
    uint2 bytes;
    half scale;
};

ByteCache_Bits ByteCache_Bits_make(uint2 bytes, half scale)
{
    ByteCache_Bits t1;
    t1.bytes = bytes;
    t1.scale = scale;
    return t1;
}

ByteCache_Bits ByteCache_fetch(uchar device* cache_1, uint size_1, uint run)
{
    uint2 t1 = (*(const device uint2*)(cache_1 + 8ULL * ulong(run)));
    half device* t2 = ByteCache_scales(cache_1, size_1);
    return ByteCache_Bits_make(t1, *(t2 + run / 4U));
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

uint Head_paired(uint d)
{
    return d < (HEAD_DIM / 2U) ? d + HEAD_DIM / 2U : d - HEAD_DIM / 2U;
}

constant uint fc_SCALED [[function_constant(10)]];
constant bool SCALED = is_function_constant_defined(fc_SCALED) ? fc_SCALED != 0U : false;
float2 turn(float angle)
{
    uint bits = as_type<uint>(angle);
    uint mantissa = (bits & 8388607U) | 8388608U;
    uint t1 = min(150U - min(bits >> 23U, 150U), 63U);
    uint2 scaled = t1 == 0U ? uint2(683565275U, 2475754826U) : (t1 < 32U ? uint2(683565275U >> t1, (2475754826U >> t1) | (683565275U << (32U - t1))) : uint2(0U, 683565275U >> (t1 - 32U)));
    uint low = (scaled.y) >> 16U;
    uint turns = mantissa * scaled.x + (((mantissa >> 12U) * low) >> 4U) + (((mantissa & 4095U) * low) >> 16U);
    uint quarter = (turns + 536870912U) >> 30U;
    float x_1 = float(int(turns - (quarter << 30U))) * 1.46291811997656396e-09;
    float y_1 = x_1 * x_1;
    float s = x_1 * (1.0 + y_1 * (-0.1666666716337204 + y_1 * (0.00833333376795053 + y_1 * (-0.0001984127011383 + y_1 * 2.75573188446287531e-06))));
    float c = 1.0 + y_1 * (-0.5 + y_1 * (0.0416666679084301 + y_1 * (-0.00138888892251998 + y_1 * 0.00002480158764229)));
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
    return (quarter & 2U) != 0U ? float2(- c_1, - s_1) : float2(c_1, s_1);
}

constant uint fc_NORMED [[function_constant(9)]];
constant bool NORMED = is_function_constant_defined(fc_NORMED) ? fc_NORMED != 0U : false;
float dot8(const Eight thread* a, const Eight thread* b)
{
    return dot(a->low, b->low) + dot(a->high, b->high);
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

struct AttentionArgs
{
    float device* queries;
    uchar device* key_cache;
    uchar device* value_cache;
    Step device* step;
    float device* result;
    uchar device* rounded;
    float device* keys;
    float device* values;
    float device* query_norm;
    float device* key_norm;
    float device* frequencies;
    float device* factors;
    uint heads_kv;
    uint group;
    uint capacity;
    uint tokens;
    uint splits;
    float scale;
    float epsilon;
};

struct EntryPointParams
{
    AttentionArgs a;
};

struct KernelContext
{
    EntryPointParams constant* given;
    array<float2, 128> threadgroup* turns;
    uint simd_lane;
    array<float2, 64> threadgroup* seen;
    array<float4, 1024> threadgroup* merged;
};

float team_sum(float x, KernelContext thread* kernelContext)
{
    float t1 = x;
    for(uint i = 1U; i < LANES; i *= 2U)
    {
        t1 = t1 + (simd_shuffle((t1), ushort(int((kernelContext->simd_lane) ^ i))));
    }
    return t1;
}

struct Head
{
    float device* norm;
    array<Eight, 4> own;
    array<Eight, 4> other;
};

float Head_measured(const Head thread* self, uint lane, float epsilon, KernelContext thread* kernelContext)
{
    float sum = 0.0;
    #pragma unroll
    for(uint c = 0U; c < 4U; c++)
    {
        if(c < CHUNKS)
        {
            sum = sum + ((c * LANES + lane) < (HEAD_DIM / 8U) ? dot8(&self->own[c], &self->own[c]) : 0.0);
        }
    }
    float t1 = team_sum(sum, kernelContext);
    return 1.0 / sqrt(t1 / float(HEAD_DIM) + epsilon);
}

float4 Head_normed(const Head thread* self, float4 x, uint d, float inverse)
{
    float4 t1;
    if(NORMED)
    {
        float4 t2 = x * float4(inverse);
        float4 t3 = (*(const device float4*)(self->norm + d));
        t1 = t2 * t3;
    }
    else
    {
        t1 = x;
    }
    return t1;
}

float4 Head_turned(const Head thread* self, float4 own, float4 other, uint d, float inverse, KernelContext thread* kernelContext)
{
    float4 t1 = Head_normed(self, own, d, inverse);
    if(INTERLEAVED)
    {
        float t2 = t1.x;
        float t3 = (*kernelContext->turns)[d / 2U].x;
        float t4 = t1.y;
        float t5 = (*kernelContext->turns)[d / 2U].y;
        float t6 = t1.z;
        float t7 = (*kernelContext->turns)[d / 2U + 1U].x;
        float t8 = t1.w;
        float t9 = (*kernelContext->turns)[d / 2U + 1U].y;
        return float4(t2 * t3 - t4 * t5, t4 * t3 + t2 * t5, t6 * t7 - t8 * t9, t8 * t7 + t6 * t9);
    }
    float4 t10 = Head_normed(self, other, Head_paired(d), inverse);
    bool t11 = d < (HEAD_DIM / 2U);
    uint p = t11 ? d : d - HEAD_DIM / 2U;
    float4 sine = float4((*kernelContext->turns)[p].y, (*kernelContext->turns)[p + 1U].y, (*kernelContext->turns)[p + 2U].y, (*kernelContext->turns)[p + 3U].y);
    float4 t12 = t1 * float4((*kernelContext->turns)[p].x, (*kernelContext->turns)[p + 1U].x, (*kernelContext->turns)[p + 2U].x, (*kernelContext->turns)[p + 3U].x);
    float4 t13 = t11 ? - t10 : t10;
    return t12 + t13 * sine;
}

void Head_rotate(Head thread* self, uint lane, float epsilon, KernelContext thread* kernelContext)
{
    float t1;
    if(NORMED)
    {
        Head t2 = *self;
        t1 = Head_measured(&t2, lane, epsilon, kernelContext);
    }
    else
    {
        t1 = 1.0;
    }
    #pragma unroll
    for(uint c = 0U; c < 4U; c++)
    {
        if(c < CHUNKS)
        {
            uint d = 8U * min(c * LANES + lane, HEAD_DIM / 8U - 1U);
            Head t3 = *self;
            float4 t4 = Head_turned(&t3, (&self->own[c])->low, (&self->other[c])->low, d, t1, kernelContext);
            uint t5 = d + 4U;
            Head t6 = *self;
            float4 t7 = Head_turned(&t6, (&self->own[c])->high, (&self->other[c])->high, t5, t1, kernelContext);
            self->own[c] = Eight_make(t4, t7);
        }
    }
}

void ByteCache_store(uchar device* cache_1, uint size_1, uint run, float4 values, float largest)
{
    half scale = half(min(largest / 127.0, 65504.0));
    float inverse = scale == 0.0 ? 0.0 : 1.0 / float(scale);
    int4 q = int4(clamp(round(values * float4(inverse)), float4(-127.0), float4(127.0))) & (int4(255));
    *((uint device*)(cache_1) + run) = uint((((q.x) | ((q.y) << 8U)) | ((q.z) << 16U)) | ((q.w) << 24U));
    if((run % 8U) == 0U)
    {
        half device* t1 = ByteCache_scales(cache_1, size_1);
        *(t1 + run / 8U) = scale;
    }
}

void store(uchar device* cache_1, uint size_1, uint run, const Eight thread* x_1, bool mine, KernelContext thread* kernelContext)
{
    float4 t1 = x_1->low;
    float4 t2 = x_1->high;
    float4 most = max(abs(x_1->low), abs(x_1->high));
    float t3 = max(max(most.x, most.y), max(most.z, most.w));
    float t4 = simd_shuffle((t3), ushort(int((kernelContext->simd_lane) ^ 1U)));
    float t5 = max(t3, t4);
    float t6 = simd_shuffle((t5), ushort(int((kernelContext->simd_lane) ^ 2U)));
    float t7 = max(t5, t6);
    if(mine)
    {
        uint t8 = 2U * run;
        ByteCache_store(cache_1, size_1, t8, t1, t7);
        ByteCache_store(cache_1, size_1, t8 + 1U, t2, t7);
    }
}

Eight ByteCache_decode(const ByteCache_Bits thread* bits)
{
    float scale = float(bits->scale);
    float4 t1 = float4(as_type<char4>(bits->bytes.x));
    float4 t2 = float4(scale);
    float4 t3 = t2 * t1;
    float4 t4 = float4(as_type<char4>(bits->bytes.y));
    return Eight_make(t3, t2 * t4);
}

constant uint fc_ROUNDED [[function_constant(6)]];
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

void Int8Activations_store(const Int8Activations thread* self, uint first, float4 x_1, KernelContext thread* kernelContext)
{
    float4 size_1 = abs(x_1);
    float most = max(max(size_1.x, size_1.y), max(size_1.z, size_1.w));
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

[[kernel]] void attention(uint thread_index [[thread_index_in_threadgroup]], uint3 group [[threadgroup_position_in_grid]], uint _builtinWaveLaneIndex_0 [[thread_index_in_simdgroup]], EntryPointParams constant* given [[buffer(0)]])
{
    Head t1;
    Head t2;
    KernelContext kernelContext;
    kernelContext.given = given;
    threadgroup array<float2, 128> turns;
    kernelContext.turns = &turns;
    threadgroup array<float2, 64> seen;
    kernelContext.seen = &seen;
    threadgroup array<float4, 1024> merged;
    kernelContext.merged = &merged;
    kernelContext.simd_lane = _builtinWaveLaneIndex_0;
    uint split = group.x;
    uint head = group.y;
    uint t3 = group.z;
    uint t4 = t3 * ROWS;
    uint lane = thread_index % LANES;
    uint t5 = thread_index / LANES;
    uint past = kernelContext.given->a.step->past;
    uint length = kernelContext.given->a.step->past + kernelContext.given->a.step->tokens;
    uint t6 = (length + kernelContext.given->a.splits * (THREADS / LANES) - 1U) / (kernelContext.given->a.splits * (THREADS / LANES));
    uint share = t6 * (THREADS / LANES);
    uint start = split * share;
    uint t7 = min(start + share, length);
    uint i = FRESH ? min(t7, past) : t7;
    uint t8 = kernelContext.given->a.heads_kv * kernelContext.given->a.capacity * HEAD_DIM;
    uint t9 = head * kernelContext.given->a.capacity * (HEAD_DIM / 8U);
    array<ByteCache_Bits, 16> keys;
    array<ByteCache_Bits, 16> values;
    #pragma unroll
    for(uint i_1 = 0U; i_1 < 4U; i_1++)
    {
        if(i_1 < AHEAD)
        {
            #pragma unroll
            for(uint c = 0U; c < 4U; c++)
            {
                if(c < CHUNKS)
                {
                    if(!(i > 0U))
                    {
                        continue;
                    }
                    uint run = t9 + min(start + i_1 * (THREADS / LANES) + t5, max(i, 1U) - 1U) * (HEAD_DIM / 8U) + min(c * LANES + lane, HEAD_DIM / 8U - 1U);
                    uint t10 = i_1 * 4U + c;
                    ByteCache_Bits t11 = ByteCache_fetch(kernelContext.given->a.key_cache, t8, run);
                    keys[t10] = t11;
                    ByteCache_Bits t12 = ByteCache_fetch(kernelContext.given->a.value_cache, t8, run);
                    values[t10] = t12;
                }
            }
        }
    }
    array<Head, 4> queries;
    float device* t13 = FRESH ? kernelContext.given->a.keys + head * HEAD_DIM : kernelContext.given->a.queries;
    AttentionArgs t14 = kernelContext.given->a;
    {
        Head t15;
        t15.norm = t14.key_norm;
        #pragma unroll
        for(uint c = 0U; c < 4U; c++)
        {
            if(c < CHUNKS)
            {
                uint d = 8U * min(c * LANES + lane, HEAD_DIM / 8U - 1U);
                float device* t16 = t13 + d;
                float4 t17 = (*(const device float4*)(t16));
                float4 t18 = (*(const device float4*)(t16 + 4));
                t15.own[c] = Eight_make(t17, t18);
                if(!INTERLEAVED)
                {
                    float4 t19 = (*(const device float4*)(t13 + Head_paired(d)));
                    float4 t20 = (*(const device float4*)(t13 + Head_paired(d + 4U)));
                    t15.other[c] = Eight_make(t19, t20);
                }
            }
        }
        t1 = t15;
    }
    Head fresh = t1;
    array<Eight, 4> value;
    #pragma unroll
    for(uint c = 0U; c < 4U; c++)
    {
        t13 = FRESH ? kernelContext.given->a.values + head * HEAD_DIM : kernelContext.given->a.queries;
        float device* from = t13 + 8U * min(c * LANES + lane, HEAD_DIM / 8U - 1U);
        float4 t21 = (*(const device float4*)(from));
        float4 t22 = (*(const device float4*)(from + 4));
        value[c] = Eight_make(t21, t22);
    }
    bool last_share = start < length && t7 == length;
    #pragma unroll
    for(uint r = 0U; r < 4U; r++)
    {
        if(r < ROWS)
        {
            uint t23 = min(t4 + r, kernelContext.given->a.tokens * kernelContext.given->a.group - 1U);
            uint t24 = t23 / kernelContext.given->a.group;
            AttentionArgs t25 = kernelContext.given->a;
            uint t26 = (t24 * kernelContext.given->a.heads_kv + head) * kernelContext.given->a.group;
            uint t27 = t23 % kernelContext.given->a.group;
            float device* t28 = t25.queries + (t26 + t27) * HEAD_DIM;
            AttentionArgs t29 = kernelContext.given->a;
            {
                Head t30;
                t30.norm = t29.query_norm;
                #pragma unroll
                for(uint c = 0U; c < 4U; c++)
                {
                    if(c < CHUNKS)
                    {
                        uint d_1 = 8U * min(c * LANES + lane, HEAD_DIM / 8U - 1U);
                        float device* t31 = t28 + d_1;
                        float4 t32 = (*(const device float4*)(t31));
                        float4 t33 = (*(const device float4*)(t31 + 4));
                        t30.own[c] = Eight_make(t32, t33);
                        if(!INTERLEAVED)
                        {
                            float4 t34 = (*(const device float4*)(t28 + Head_paired(d_1)));
                            float4 t35 = (*(const device float4*)(t28 + Head_paired(d_1 + 4U)));
                            t30.other[c] = Eight_make(t34, t35);
                        }
                    }
                }
                t2 = t30;
            }
            queries[r] = t2;
        }
    }
    if(FRESH)
    {
        for(uint base = thread_index; base < (HEAD_DIM / 2U); base += THREADS)
        {
            float frequency = *(kernelContext.given->a.frequencies + base);
            float scale = SCALED ? frequency / *(kernelContext.given->a.factors + base) : frequency;
            (*kernelContext.turns)[base] = turn(float(past) * scale);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    array<Eight, 16> q;
    array<Eight, 16> sum;
    array<float, 4> largest;
    array<float, 4> weight;
    array<uint, 4> last;
    #pragma unroll
    for(uint r = 0U; r < 4U; r++)
    {
        if(r < ROWS)
        {
            if(FRESH)
            {
                Head_rotate(&queries[r], lane, kernelContext.given->a.epsilon, &kernelContext);
            }
            #pragma unroll
            for(uint c = 0U; c < 4U; c++)
            {
                if(c < CHUNKS)
                {
                    float scale = (c * LANES + lane) < (HEAD_DIM / 8U) ? kernelContext.given->a.scale : 0.0;
                    uint t36 = r * 4U + c;
                    q[t36] = Eight_make(float4(scale) * (&(&queries[r])->own[c])->low, float4(scale) * (&(&queries[r])->own[c])->high);
                    float4 t37 = float4(0.0);
                    sum[t36] = Eight_make(t37, t37);
                }
            }
            largest[r] = -1.00000001504746622e+30;
            weight[r] = 0.0;
            uint t38 = min(t4 + r, kernelContext.given->a.tokens * kernelContext.given->a.group - 1U) / kernelContext.given->a.group;
            last[r] = past + t38;
        }
    }
    if(!(FRESH))
    {
        last_share = false;
    }
    if(last_share)
    {
        Head_rotate(&fresh, lane, kernelContext.given->a.epsilon, &kernelContext);
        array<float, 4> score;
        #pragma unroll
        for(uint r = 0U; r < 4U; r++)
        {
            if(r < ROWS)
            {
                score[r] = 0.0;
            }
        }
        #pragma unroll
        for(uint c = 0U; c < 4U; c++)
        {
            if(c < CHUNKS)
            {
                uint t39 = c * LANES + lane;
                uint run_1 = t9 + past * (HEAD_DIM / 8U) + min(t39, HEAD_DIM / 8U - 1U);
                bool t40 = t5 == 0U;
                last_share = t40 && t3 == 0U;
                bool mine = last_share && t39 < (HEAD_DIM / 8U);
                AttentionArgs t41 = kernelContext.given->a;
                Eight t42 = fresh.own[c];
                store(t41.key_cache, t8, run_1, &t42, mine, &kernelContext);
                AttentionArgs t43 = kernelContext.given->a;
                Eight t44 = value[c];
                store(t43.value_cache, t8, run_1, &t44, mine, &kernelContext);
                #pragma unroll
                for(uint r = 0U; r < 4U; r++)
                {
                    if(r < ROWS)
                    {
                        uint t45 = r * 4U + c;
                        Eight t46 = q[t45];
                        Eight t47 = fresh.own[c];
                        float t48 = dot8(&t46, &t47);
                        score[r] = score[r] + t48;
                        if(t40)
                        {
                            sum[t45] = value[c];
                        }
                    }
                }
            }
        }
        #pragma unroll
        for(uint r = 0U; r < 4U; r++)
        {
            if(r < ROWS)
            {
                float t49 = team_sum(score[r], &kernelContext);
                score[r] = t49;
                bool t50 = t5 == 0U;
                float scale = t50 ? score[r] : -1.00000001504746622e+30;
                largest[r] = scale;
                int t51 = t50 ? 1 : 0;
                weight[r] = float(t51);
            }
        }
    }
    for(uint base = start; base < i; base += THREADS / LANES * AHEAD)
    {
        array<ByteCache_Bits, 16> next_keys;
        array<ByteCache_Bits, 16> next_values;
        #pragma unroll
        for(uint i_1 = 0U; i_1 < 4U; i_1++)
        {
            if(i_1 < AHEAD)
            {
                #pragma unroll
                for(uint c = 0U; c < 4U; c++)
                {
                    if(c < CHUNKS)
                    {
                        uint run_2 = t9 + min(base + (AHEAD + i_1) * (THREADS / LANES) + t5, i - 1U) * (HEAD_DIM / 8U) + min(c * LANES + lane, HEAD_DIM / 8U - 1U);
                        uint t52 = i_1 * 4U + c;
                        ByteCache_Bits t53 = ByteCache_fetch(kernelContext.given->a.key_cache, t8, run_2);
                        next_keys[t52] = t53;
                        ByteCache_Bits t54 = ByteCache_fetch(kernelContext.given->a.value_cache, t8, run_2);
                        next_values[t52] = t54;
                    }
                }
            }
        }
        array<float, 16> score_1;
        #pragma unroll
        for(uint i_2 = 0U; i_2 < 4U; i_2++)
        {
            if(i_2 < AHEAD)
            {
                #pragma unroll
                for(uint r = 0U; r < 4U; r++)
                {
                    if(r < ROWS)
                    {
                        score_1[i_2 * 4U + r] = 0.0;
                    }
                }
                #pragma unroll
                for(uint c = 0U; c < 4U; c++)
                {
                    if(c < CHUNKS)
                    {
                        uint t55 = i_2 * 4U;
                        ByteCache_Bits t56 = keys[t55 + c];
                        Eight t57 = ByteCache_decode(&t56);
                        #pragma unroll
                        for(uint r_1 = 0U; r_1 < 4U; r_1++)
                        {
                            if(r_1 < ROWS)
                            {
                                Eight t58 = q[r_1 * 4U + c];
                                Eight t59 = t57;
                                float t60 = dot8(&t58, &t59);
                                score_1[t55 + r_1] = score_1[t55 + r_1] + t60;
                            }
                        }
                    }
                }
            }
        }
        #pragma unroll
        for(uint r = 0U; r < 4U; r++)
        {
            if(r < ROWS)
            {
                float scale = largest[r];
                #pragma unroll
                for(uint i_3 = 0U; i_3 < 4U; i_3++)
                {
                    if(i_3 < AHEAD)
                    {
                        float t61 = team_sum(score_1[i_3 * 4U + r], &kernelContext);
                        uint key = base + i_3 * (THREADS / LANES) + t5;
                        last_share = key < i && key <= last[r];
                        float t62 = last_share ? t61 : (-1.00000001504746622e+30);
                        score_1[i_3 * 4U + r] = t62;
                        scale = max(scale, t62);
                    }
                }
                float keep = exp2(largest[r] - scale);
                largest[r] = scale;
                weight[r] = weight[r] * keep;
                #pragma unroll
                for(uint r_1 = 0U; r_1 < 4U; r_1++)
                {
                    if(r_1 < AHEAD)
                    {
                        float s = ((score_1[r_1 * 4U + r]) > -1.00000001504746622e+30) ? (exp2(score_1[r_1 * 4U + r] - scale)) : 0.0;
                        score_1[r_1 * 4U + r] = s;
                        weight[r] = weight[r] + s;
                    }
                }
                #pragma unroll
                for(uint c = 0U; c < 4U; c++)
                {
                    if(c < CHUNKS)
                    {
                        float4 t63 = float4(keep);
                        (&sum[r * 4U + c])->low = (&sum[r * 4U + c])->low * t63;
                        (&sum[r * 4U + c])->high = (&sum[r * 4U + c])->high * t63;
                    }
                }
            }
        }
        #pragma unroll
        for(uint i_3 = 0U; i_3 < 4U; i_3++)
        {
            if(i_3 < AHEAD)
            {
                #pragma unroll
                for(uint c = 0U; c < 4U; c++)
                {
                    if(c < CHUNKS)
                    {
                        uint t64 = i_3 * 4U;
                        uint t65 = t64 + c;
                        ByteCache_Bits t66 = values[t65];
                        Eight t67 = ByteCache_decode(&t66);
                        #pragma unroll
                        for(uint r_1 = 0U; r_1 < 4U; r_1++)
                        {
                            if(r_1 < ROWS)
                            {
                                (&sum[r_1 * 4U + c])->low = (&sum[r_1 * 4U + c])->low + float4(score_1[t64 + r_1]) * t67.low;
                                (&sum[r_1 * 4U + c])->high = (&sum[r_1 * 4U + c])->high + float4(score_1[t64 + r_1]) * t67.high;
                            }
                        }
                        keys[t65] = next_keys[t65];
                        values[t65] = next_values[t65];
                    }
                }
            }
        }
    }
    #pragma unroll
    for(uint r = 0U; r < 4U; r++)
    {
        if(r < ROWS)
        {
            float scale = largest[r];
            for(uint i_1 = LANES; i_1 < (THREADS / SUBGROUPS); i_1 *= 2U)
            {
                float t68 = simd_shuffle((scale), ushort(int((kernelContext.simd_lane) ^ i_1)));
                scale = max(scale, t68);
            }
            float keep_1 = exp2(largest[r] - scale);
            float total = keep_1 * weight[r];
            for(i = LANES; i < (THREADS / SUBGROUPS); i *= 2U)
            {
                total = total + (simd_shuffle((total), ushort(int((kernelContext.simd_lane) ^ i))));
            }
            uint t69 = thread_index / (THREADS / SUBGROUPS);
            uint place = t69 * ROWS + r;
            if(simd_is_first())
            {
                (*kernelContext.seen)[place] = float2(scale, total);
            }
            #pragma unroll
            for(uint c = 0U; c < 4U; c++)
            {
                if(c < CHUNKS)
                {
                    Eight s_1 = sum[r * 4U + c];
                    float4 t70 = float4(keep_1);
                    s_1.low = s_1.low * t70;
                    s_1.high = s_1.high * t70;
                    for(uint i_2 = LANES; i_2 < (THREADS / SUBGROUPS); i_2 *= 2U)
                    {
                        int t71 = int((kernelContext.simd_lane) ^ i_2);
                        s_1.low = s_1.low + (simd_shuffle((s_1.low), ushort(t71)));
                        s_1.high = s_1.high + (simd_shuffle((s_1.high), ushort(t71)));
                    }
                    uint chunk = c * LANES + lane;
                    last_share = (kernelContext.simd_lane) < LANES && chunk < (HEAD_DIM / 8U);
                    if(last_share)
                    {
                        uint t72 = place * HEAD_DIM + 8U * chunk;
                        (*kernelContext.merged)[t72 / 4U] = s_1.low;
                        (*kernelContext.merged)[t72 / 4U + 1U] = s_1.high;
                    }
                }
            }
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint t73 = kernelContext.given->a.tokens * kernelContext.given->a.group;
    uint t74 = kernelContext.given->a.heads_kv * kernelContext.given->a.group * HEAD_DIM;
    for(uint i_1 = thread_index; i_1 < (ROWS * HEAD_DIM / 4U); i_1 += THREADS)
    {
        uint r_2 = i_1 / (HEAD_DIM / 4U);
        uint t75 = i_1 % (HEAD_DIM / 4U);
        uint column = t75 * 4U;
        uint row = t4 + r_2;
        if(row >= t73)
        {
            break;
        }
        float4 t76 = float4(0.0);
        float scale = -1.00000001504746622e+30;
        for(i = 0U; i < SUBGROUPS; i++)
        {
            scale = max(scale, (*kernelContext.seen)[i * ROWS + r_2].x);
        }
        float total = 0.0;
        float4 all = t76;
        for(uint i_2 = 0U; i_2 < SUBGROUPS; i_2++)
        {
            uint t77 = i_2 * ROWS + r_2;
            float keep_2 = exp2((*kernelContext.seen)[t77].x - scale);
            total = total + keep_2 * (*kernelContext.seen)[t77].y;
            all = all + float4(keep_2) * (*kernelContext.merged)[(t77 * HEAD_DIM + column) / 4U];
        }
        if((kernelContext.given->a.splits) > 1U)
        {
            uint place_1 = (head * t73 + row) * kernelContext.given->a.splits + split;
            *(device float4*)(kernelContext.given->a.result + place_1 * HEAD_DIM + column) = (all);
            packed_float2 device* t78 = (packed_float2 device*)(kernelContext.given->a.result + kernelContext.given->a.heads_kv * t73 * kernelContext.given->a.splits * HEAD_DIM);
            if(column == 0U)
            {
                *(t78 + place_1) = packed_float2(float2(scale, total));
            }
            continue;
        }
        uint t79 = row / kernelContext.given->a.group;
        uint t80 = t79 * t74;
        uint t81 = head * kernelContext.given->a.group;
        uint t82 = row % kernelContext.given->a.group;
        uint column_1 = column + (t80 + (t81 + t82) * HEAD_DIM);
        *(device float4*)(kernelContext.given->a.result + column_1) = (all / float4(total));
        if(ROUNDED)
        {
            Int8Activations t83 = Int8Activations_make(kernelContext.given->a.rounded, kernelContext.given->a.tokens, t74);
            float4 t84 = all / float4(total);
            Int8Activations t85 = t83;
            Int8Activations_store(&t85, column_1, t84, &kernelContext);
        }
    }
}

