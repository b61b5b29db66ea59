// entry embed, threads 64 1 1
#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(fast)
struct Quants
{
    uint4 q;
    float scale;
    float min;
};

struct Q6_K_Bits
{
    uint4 nibbles;
    uint4 pairs;
    uint2 scales;
    uint d;
};

struct Codes
{
    uint4 q;
    float scale;
    float min;
};

Codes Codes_make(uint4 q_1, float scale_1, float min_1)
{
    Codes t1;
    t1.q = q_1;
    t1.scale = scale_1;
    t1.min = min_1;
    return t1;
}

Codes Q6_K_codes(const Q6_K_Bits thread* bits, uint unit, uint group)
{
    uint4 q_1 = ((bits->nibbles) >> (uint4(group * 4U))) & (uint4(252645135U));
    uint4 pairs = group == 0U ? (bits->pairs) << (uint4(4U)) : bits->pairs;
    return Codes_make(q_1 | (pairs & (uint4(808464432U))), float(int((bits->scales[group]) << (24U - (unit & 1U) * 8U)) >> 24U), 0.0);
}

float2 Q6_K_factors(const Q6_K_Bits thread* bits)
{
    return float2(as_type<half>((ushort)(bits->d)));
}

Quants Quants_make(uint4 q_1, float scale_1, float min_1)
{
    Quants t1;
    t1.q = q_1;
    t1.scale = scale_1;
    t1.min = min_1;
    return t1;
}

Quants IDotFormat_quants(const Q6_K_Bits thread* bits, uint unit, uint group)
{
    Codes t1 = Q6_K_codes(bits, unit, group);
    float2 t2 = Q6_K_factors(bits);
    float scale_1 = t2.x * t1.scale;
    return Quants_make(t1.q, scale_1, scale_1 * 32.0);
}

struct Sixteens
{
    ulong aligned;
    bool two;
    bool one;
    bool odd;
};

Sixteens Sixteens_make(uchar device* block)
{
    ulong address = (ulong)block;
    uint low = uint(address);
    Sixteens t1;
    t1.aligned = address & 18446744073709551600ULL;
    t1.two = (low & 8U) != 0U;
    t1.one = (low & 4U) != 0U;
    t1.odd = (low & 2U) != 0U;
    return t1;
}

struct Words
{
    uint4 low;
    uint4 high;
};

Words Words_make(uint4 a, uint4 b, bool two, bool one)
{
    uint t1 = a.z;
    uint t2 = a.w;
    uint s1 = two ? t2 : a.y;
    uint t3 = b.x;
    uint s2 = two ? t3 : t1;
    uint t4 = b.y;
    uint s3 = two ? t4 : t2;
    uint s4 = two ? b.z : t3;
    uint s5 = two ? b.w : t4;
    Words t5;
    uint t6 = one ? s2 : s1;
    uint t7 = one ? s3 : s2;
    uint t8 = one ? s4 : s3;
    t5.low = uint4((one ? s1 : (two ? t1 : a.x)), t6, t7, t8);
    t5.high = uint4(uint3(t6, t7, t8), (one ? s5 : s4));
    return t5;
}

uint4 Sixteens_shifted(const Sixteens thread* self, uint4 a, uint4 b)
{
    Words words = Words_make(a, b, self->two, self->one);
    uint4 t1 = uint4(16U);
    return self->odd ? (((words.low) >> t1) | ((words.high) << t1)) : words.low;
}

uint4 Sixteens_load(const Sixteens thread* self, uint offset)
{
    ulong first = self->aligned + ulong(offset);
    uint4 t1 = (*(const device uint4*)((uchar device*)first));
    uint4 t2 = (*(const device uint4*)((uchar device*)(first + 16ULL)));
    return Sixteens_shifted(self, t1, t2);
}

uint load2(uchar device* p)
{
    return uint(*(ushort device*)(p));
}

Q6_K_Bits Q6_K_Bits_make(uint4 nibbles, uint4 pairs, uint2 scales, uint d)
{
    Q6_K_Bits t1;
    t1.nibbles = nibbles;
    t1.pairs = pairs;
    t1.scales = scales;
    t1.d = d;
    return t1;
}

Q6_K_Bits Q6_K_fetch(uchar device* row, uint unit)
{
    uchar device* block = row + (unit >> 3U) * 210U;
    uint half_1 = (unit >> 2U) & 1U;
    uint place = unit & 3U;
    Sixteens sixteens = Sixteens_make(block);
    uint t1 = half_1 * 64U + place * 16U;
    Sixteens t2 = sixteens;
    uint4 t3 = Sixteens_load(&t2, t1);
    uint t4 = 128U + half_1 * 32U + (unit & 1U) * 16U;
    Sixteens t5 = sixteens;
    uint4 t6 = Sixteens_load(&t5, t4);
    uint t7 = unit & 2U;
    uint4 pairs = t6 >> (uint4(t7));
    uchar device* scales = block + 192 + half_1 * 8U + t7;
    uint t8 = load2(scales);
    uint t9 = load2(scales + 4);
    uint2 t10 = uint2(t8, t9);
    uint t11 = load2(block + 208);
    return Q6_K_Bits_make(t3, pairs, t10, t11);
}

array<float4, 4> to_floats(const Quants thread* quants)
{
    array<float4, 4> w;
    #pragma unroll
    for(uint i = 0U; i < 4U; i++)
    {
        float4 t1 = float4(as_type<char4>(quants->q[i]));
        w[i] = float4(quants->scale) * t1 - float4(quants->min);
    }
    return w;
}

array<float4, 4> Q6_K_weights(const Q6_K_Bits thread* bits, uint unit, uint group)
{
    Quants t1 = IDotFormat_quants(bits, unit, group);
    return to_floats(&t1);
}

uint Q6_K_column(uint unit, uint group)
{
    return (unit >> 2U) * 128U + group * 64U + (unit & 3U) * 16U;
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

struct EmbedArgs
{
    uint device* tokens;
    Step device* step;
    uchar device* w;
    float device* y;
    uint columns;
    uint row_nbytes;
};

struct EntryPointParams
{
    EmbedArgs args;
};

[[kernel]] void embed(uint3 at [[thread_position_in_grid]], EntryPointParams constant* given [[buffer(0)]])
{
    uint t1 = at.y;
    if(t1 >= (given->args.step->tokens))
    {
        return;
    }
    uchar device* row = given->args.w + ulong(*(given->args.tokens + t1)) * ulong(given->args.row_nbytes);
    float device* y_1 = given->args.y + ulong(t1) * ulong(given->args.columns);
    uint unit = at.x;
    if(unit < (given->args.columns / 32U))
    {
        Q6_K_Bits t2 = Q6_K_fetch(row, unit);
        #pragma unroll
        for(uint group = 0U; group < 2U; group++)
        {
            Q6_K_Bits t3 = t2;
            array<float4, 4> t4 = Q6_K_weights(&t3, unit, group);
            float device* t5 = y_1 + Q6_K_column(unit, group);
            #pragma unroll
            for(uint i = 0U; i < 4U; i++)
            {
                *(device float4*)(t5 + i * 4U) = (t4[i]);
            }
        }
    }
}

