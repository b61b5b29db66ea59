// entry attention, threads constant 0
#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(fast)
constant uint fc_HEAD_DIM [[function_constant(1)]];
constant uint HEAD_DIM = is_function_constant_defined(fc_HEAD_DIM) ? fc_HEAD_DIM : 128U;
constant uint fc_ROWS [[function_constant(2)]];
constant uint ROWS = is_function_constant_defined(fc_ROWS) ? fc_ROWS : 4U;
constant uint fc_LANES [[function_constant(3)]];
constant uint LANES = is_function_constant_defined(fc_LANES) ? fc_LANES : 8U;
constant uint fc_INTERLEAVED [[function_constant(7)]];
constant bool INTERLEAVED = is_function_constant_defined(fc_INTERLEAVED) ? fc_INTERLEAVED != 0U : true;
constant uint fc_THREADS [[function_constant(0)]];
constant uint THREADS = is_function_constant_defined(fc_THREADS) ? fc_THREADS : 256U;
constant uint fc_FRESH [[function_constant(6)]];
constant bool FRESH = is_function_constant_defined(fc_FRESH) ? fc_FRESH != 0U : false;
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

constant uint fc_SCALED [[function_constant(9)]];
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

constant uint fc_NORMED [[function_constant(8)]];
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
    for(uint i = 1U; i <= (LANES / 2U); i *= 2U)
    {
        t1 = t1 + (simd_shuffle((t1), ushort(int((kernelContext->simd_lane) ^ i))));
    }
    return t1;
}

struct Head
{
    float device* norm;
    array<Eight, 2> own;
    array<Eight, 2> other;
};

float Head_measured(const Head thread* self, uint lane, float epsilon, KernelContext thread* kernelContext)
{
    float sum = 0.0;
    #pragma unroll
    for(uint c = 0U; c < 2U; c++)
    {
        sum = sum + ((c * LANES + lane) < (HEAD_DIM / 8U) ? dot8(&self->own[c], &self->own[c]) : 0.0);
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
    for(uint c = 0U; c < 2U; c++)
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

float teams_max(float x, KernelContext thread* kernelContext)
{
    float t1 = x;
    for(uint i = LANES; i <= 16U; i *= 2U)
    {
        float t2 = simd_shuffle((t1), ushort(int((kernelContext->simd_lane) ^ i)));
        t1 = max(t1, t2);
    }
    return t1;
}

float teams_sum(float x, KernelContext thread* kernelContext)
{
    float t1 = x;
    for(uint i = LANES; i <= 16U; i *= 2U)
    {
        t1 = t1 + (simd_shuffle((t1), ushort(int((kernelContext->simd_lane) ^ i))));
    }
    return t1;
}

Eight teams_sum_1(const Eight thread* x, KernelContext thread* kernelContext)
{
    Eight t1 = *x;
    for(uint i = LANES; i <= 16U; i *= 2U)
    {
        t1.low = t1.low + (simd_shuffle((t1.low), ushort(int((kernelContext->simd_lane) ^ i))));
        t1.high = t1.high + (simd_shuffle((t1.high), ushort(int((kernelContext->simd_lane) ^ i))));
    }
    return t1;
}

constant uint fc_SUBGROUPS [[function_constant(10)]];
constant uint SUBGROUPS = is_function_constant_defined(fc_SUBGROUPS) ? fc_SUBGROUPS : 8U;
constant uint fc_ROUNDED [[function_constant(5)]];
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
    uint t6 = length / (kernelContext.given->a.splits * (THREADS / LANES));
    uint share = (t6 + 1U) * (THREADS / LANES);
    uint start = split * share;
    uint t7 = min(start + share, length);
    uint g = FRESH ? min(t7, past) : t7;
    uint t8 = kernelContext.given->a.heads_kv * kernelContext.given->a.capacity * HEAD_DIM;
    uint t9 = head * kernelContext.given->a.capacity * (HEAD_DIM / 8U);
    uint t10 = kernelContext.given->a.tokens * kernelContext.given->a.group;
    array<ByteCache_Bits, 4> keys;
    array<ByteCache_Bits, 4> values;
    #pragma unroll
    for(uint i = 0U; i < 2U; i++)
    {
        #pragma unroll
        for(uint c = 0U; c < 2U; c++)
        {
            if(!(g > 0U))
            {
                continue;
            }
            uint run = t9 + min(start + i * (THREADS / LANES) + t5, g - 1U) * (HEAD_DIM / 8U) + min(c * LANES + lane, HEAD_DIM / 8U - 1U);
            uint t11 = i * 2U + c;
            ByteCache_Bits t12 = ByteCache_fetch(kernelContext.given->a.key_cache, t8, run);
            keys[t11] = t12;
            ByteCache_Bits t13 = ByteCache_fetch(kernelContext.given->a.value_cache, t8, run);
            values[t11] = t13;
        }
    }
    array<Head, 4> queries;
    float device* t14 = FRESH ? kernelContext.given->a.keys + head * HEAD_DIM : kernelContext.given->a.queries;
    AttentionArgs t15 = kernelContext.given->a;
    {
        Head t16;
        t16.norm = t15.key_norm;
        #pragma unroll
        for(uint c = 0U; c < 2U; c++)
        {
            uint d = 8U * min(c * LANES + lane, HEAD_DIM / 8U - 1U);
            float device* t17 = t14 + d;
            float4 t18 = (*(const device float4*)(t17));
            float4 t19 = (*(const device float4*)(t17 + 4));
            t16.own[c] = Eight_make(t18, t19);
            if(!INTERLEAVED)
            {
                float4 t20 = (*(const device float4*)(t14 + Head_paired(d)));
                float4 t21 = (*(const device float4*)(t14 + Head_paired(d + 4U)));
                t16.other[c] = Eight_make(t20, t21);
            }
        }
        t1 = t16;
    }
    Head fresh = t1;
    array<Eight, 2> value;
    #pragma unroll
    for(uint c = 0U; c < 2U; c++)
    {
        t14 = FRESH ? kernelContext.given->a.values + head * HEAD_DIM : kernelContext.given->a.queries;
        float device* from = t14 + 8U * min(c * LANES + lane, HEAD_DIM / 8U - 1U);
        float4 t22 = (*(const device float4*)(from));
        float4 t23 = (*(const device float4*)(from + 4));
        value[c] = Eight_make(t22, t23);
    }
    bool last_share = start < length && t7 == length;
    #pragma unroll
    for(uint r = 0U; r < 4U; r++)
    {
        if(r < ROWS)
        {
            uint t24 = min(t4 + r, t10 - 1U);
            uint t25 = t24 / kernelContext.given->a.group;
            AttentionArgs t26 = kernelContext.given->a;
            uint t27 = (t25 * kernelContext.given->a.heads_kv + head) * kernelContext.given->a.group;
            uint t28 = t24 % kernelContext.given->a.group;
            float device* t29 = t26.queries + (t27 + t28) * HEAD_DIM;
            AttentionArgs t30 = kernelContext.given->a;
            {
                Head t31;
                t31.norm = t30.query_norm;
                #pragma unroll
                for(uint c = 0U; c < 2U; c++)
                {
                    uint d_1 = 8U * min(c * LANES + lane, HEAD_DIM / 8U - 1U);
                    float device* t32 = t29 + d_1;
                    float4 t33 = (*(const device float4*)(t32));
                    float4 t34 = (*(const device float4*)(t32 + 4));
                    t31.own[c] = Eight_make(t33, t34);
                    if(!INTERLEAVED)
                    {
                        float4 t35 = (*(const device float4*)(t29 + Head_paired(d_1)));
                        float4 t36 = (*(const device float4*)(t29 + Head_paired(d_1 + 4U)));
                        t31.other[c] = Eight_make(t35, t36);
                    }
                }
                t2 = t31;
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
    array<Eight, 8> q;
    array<Eight, 8> sum;
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
            for(uint c = 0U; c < 2U; c++)
            {
                float scale = (c * LANES + lane) < (HEAD_DIM / 8U) ? kernelContext.given->a.scale : 0.0;
                uint t37 = r * 2U + c;
                q[t37] = Eight_make(float4(scale) * (&(&queries[r])->own[c])->low, float4(scale) * (&(&queries[r])->own[c])->high);
                float4 t38 = float4(0.0);
                sum[t37] = Eight_make(t38, t38);
            }
            largest[r] = -1.00000001504746622e+30;
            weight[r] = 0.0;
            uint t39 = (t4 + r) / kernelContext.given->a.group;
            last[r] = past + t39;
        }
    }
    if(!(FRESH))
    {
        last_share = false;
    }
    if(last_share)
    {
        Head_rotate(&fresh, lane, kernelContext.given->a.epsilon, &kernelContext);
        #pragma unroll
        for(uint c = 0U; c < 2U; c++)
        {
            uint t40 = c * LANES;
            uint run_1 = t9 + past * (HEAD_DIM / 8U) + t40 + lane;
            last_share = t5 == 0U && t3 == 0U;
            bool mine = last_share && (t40 + lane) < (HEAD_DIM / 8U);
            AttentionArgs t41 = kernelContext.given->a;
            Eight t42 = fresh.own[c];
            store(t41.key_cache, t8, run_1, &t42, mine, &kernelContext);
            AttentionArgs t43 = kernelContext.given->a;
            Eight t44 = value[c];
            store(t43.value_cache, t8, run_1, &t44, mine, &kernelContext);
        }
        #pragma unroll
        for(uint r = 0U; r < 4U; r++)
        {
            if(r < ROWS)
            {
                float scale = 0.0;
                #pragma unroll
                for(uint c = 0U; c < 2U; c++)
                {
                    uint t45 = r * 2U + c;
                    Eight t46 = q[t45];
                    Eight t47 = fresh.own[c];
                    scale = scale + dot8(&t46, &t47);
                    if(t5 == 0U)
                    {
                        sum[t45] = value[c];
                    }
                }
                float t48 = team_sum(scale, &kernelContext);
                bool t49 = t5 == 0U;
                float total = t49 ? t48 : -1.00000001504746622e+30;
                largest[r] = total;
                int t50 = t49 ? 1 : 0;
                weight[r] = float(t50);
            }
        }
    }
    for(uint base = start; base < g; base += THREADS / LANES * 2U)
    {
        array<ByteCache_Bits, 4> next_keys;
        array<ByteCache_Bits, 4> next_values;
        #pragma unroll
        for(uint i = 0U; i < 2U; i++)
        {
            #pragma unroll
            for(uint c = 0U; c < 2U; c++)
            {
                uint run_2 = t9 + min(base + (2U + i) * (THREADS / LANES) + t5, g - 1U) * (HEAD_DIM / 8U) + min(c * LANES + lane, HEAD_DIM / 8U - 1U);
                uint t51 = i * 2U + c;
                ByteCache_Bits t52 = ByteCache_fetch(kernelContext.given->a.key_cache, t8, run_2);
                next_keys[t51] = t52;
                ByteCache_Bits t53 = ByteCache_fetch(kernelContext.given->a.value_cache, t8, run_2);
                next_values[t51] = t53;
            }
        }
        array<float, 8> score;
        score[0] = 0.0;
        score[1] = 0.0;
        score[2] = 0.0;
        score[3] = 0.0;
        score[4] = 0.0;
        score[5] = 0.0;
        score[6] = 0.0;
        score[7] = 0.0;
        #pragma unroll
        for(uint i_1 = 0U; i_1 < 2U; i_1++)
        {
            #pragma unroll
            for(uint c = 0U; c < 2U; c++)
            {
                ByteCache_Bits t54 = keys[i_1 * 2U + c];
                Eight t55 = ByteCache_decode(&t54);
                #pragma unroll
                for(uint r = 0U; r < 4U; r++)
                {
                    if(r < ROWS)
                    {
                        Eight t56 = q[r * 2U + c];
                        Eight t57 = t55;
                        float t58 = dot8(&t56, &t57);
                        score[i_1 * 4U + r] = score[i_1 * 4U + r] + t58;
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
                for(uint i_2 = 0U; i_2 < 2U; i_2++)
                {
                    float t59 = team_sum(score[i_2 * 4U + r], &kernelContext);
                    uint key = base + i_2 * (THREADS / LANES) + t5;
                    last_share = key < g && key <= last[r];
                    float t60 = last_share ? t59 : (-1.00000001504746622e+30);
                    score[i_2 * 4U + r] = t60;
                    scale = max(scale, t60);
                }
                float keep = exp2(largest[r] - scale);
                largest[r] = scale;
                weight[r] = weight[r] * keep;
                #pragma unroll
                for(uint i_3 = 0U; i_3 < 2U; i_3++)
                {
                    float s = ((score[i_3 * 4U + r]) > -1.00000001504746622e+30) ? (exp2(score[i_3 * 4U + r] - scale)) : 0.0;
                    score[i_3 * 4U + r] = s;
                    weight[r] = weight[r] + s;
                }
                #pragma unroll
                for(uint c = 0U; c < 2U; c++)
                {
                    float4 t61 = float4(keep);
                    (&sum[r * 2U + c])->low = (&sum[r * 2U + c])->low * t61;
                    (&sum[r * 2U + c])->high = (&sum[r * 2U + c])->high * t61;
                }
            }
        }
        #pragma unroll
        for(uint i_2 = 0U; i_2 < 2U; i_2++)
        {
            #pragma unroll
            for(uint c = 0U; c < 2U; c++)
            {
                uint t62 = i_2 * 2U + c;
                ByteCache_Bits t63 = values[t62];
                Eight t64 = ByteCache_decode(&t63);
                #pragma unroll
                for(uint i_3 = 0U; i_3 < 4U; i_3++)
                {
                    if(i_3 < ROWS)
                    {
                        (&sum[i_3 * 2U + c])->low = (&sum[i_3 * 2U + c])->low + float4(score[i_2 * 4U + i_3]) * t64.low;
                        (&sum[i_3 * 2U + c])->high = (&sum[i_3 * 2U + c])->high + float4(score[i_2 * 4U + i_3]) * t64.high;
                    }
                }
                keys[t62] = next_keys[t62];
                values[t62] = next_values[t62];
            }
        }
    }
    #pragma unroll
    for(uint r = 0U; r < 4U; r++)
    {
        if(r < ROWS)
        {
            float t65 = teams_max(largest[r], &kernelContext);
            float keep_1 = exp2(largest[r] - t65);
            float t66 = teams_sum(keep_1 * weight[r], &kernelContext);
            uint place = thread_index / 32U * ROWS + r;
            if(simd_is_first())
            {
                (*kernelContext.seen)[place] = float2(t65, t66);
            }
            #pragma unroll
            for(uint c = 0U; c < 2U; c++)
            {
                float4 t67 = float4(keep_1);
                Eight t68 = Eight_make(t67 * sum[r * 2U + c].low, t67 * sum[r * 2U + c].high);
                Eight t69 = teams_sum_1(&t68, &kernelContext);
                uint chunk = c * LANES + lane;
                last_share = (kernelContext.simd_lane) == lane && chunk < (HEAD_DIM / 8U);
                if(last_share)
                {
                    uint t70 = place * HEAD_DIM + 8U * chunk;
                    (*kernelContext.merged)[t70 / 4U] = t69.low;
                    (*kernelContext.merged)[t70 / 4U + 1U] = t69.high;
                }
            }
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint t71 = kernelContext.given->a.heads_kv * kernelContext.given->a.group * HEAD_DIM;
    for(uint i = thread_index; i < (ROWS * HEAD_DIM / 4U); i += THREADS)
    {
        uint r_1 = i / (HEAD_DIM / 4U);
        uint t72 = i % (HEAD_DIM / 4U);
        uint column = t72 * 4U;
        uint row = t4 + r_1;
        if(row >= t10)
        {
            break;
        }
        float4 t73 = float4(0.0);
        float scale = -1.00000001504746622e+30;
        for(g = 0U; g < SUBGROUPS; g++)
        {
            scale = max(scale, (*kernelContext.seen)[g * ROWS + r_1].x);
        }
        float total = 0.0;
        float4 all = t73;
        for(uint i_1 = 0U; i_1 < SUBGROUPS; i_1++)
        {
            uint t74 = i_1 * ROWS + r_1;
            float keep_2 = exp2((*kernelContext.seen)[t74].x - scale);
            total = total + keep_2 * (*kernelContext.seen)[t74].y;
            all = all + float4(keep_2) * (*kernelContext.merged)[(t74 * HEAD_DIM + column) / 4U];
        }
        if((kernelContext.given->a.splits) > 1U)
        {
            uint place_1 = (head * t10 + row) * kernelContext.given->a.splits + split;
            *(device float4*)(kernelContext.given->a.result + place_1 * HEAD_DIM + column) = (all);
            packed_float2 device* t75 = (packed_float2 device*)(kernelContext.given->a.result + kernelContext.given->a.heads_kv * t10 * kernelContext.given->a.splits * HEAD_DIM);
            if(column == 0U)
            {
                *(t75 + place_1) = packed_float2(float2(scale, total));
            }
            continue;
        }
        uint t76 = row / kernelContext.given->a.group;
        uint t77 = t76 * t71;
        uint t78 = head * kernelContext.given->a.group;
        uint t79 = row % kernelContext.given->a.group;
        uint column_1 = column + (t77 + (t78 + t79) * HEAD_DIM);
        *(device float4*)(kernelContext.given->a.result + column_1) = (all / float4(total));
        if(ROUNDED)
        {
            Int8Activations t80 = Int8Activations_make(kernelContext.given->a.rounded, kernelContext.given->a.tokens, t71);
            float4 t81 = all / float4(total);
            Int8Activations t82 = t80;
            Int8Activations_store(&t82, column_1, t81, &kernelContext);
        }
    }
}

