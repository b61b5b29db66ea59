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

struct Q2_K_Bits
{
    uint4 scales;
    uint4 pairs;
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

Codes Q2_K_codes(const Q2_K_Bits thread* bits, uint unit, uint group)
{
    uint code = (((unit & 2U) != 0U) ? (bits->scales[2U + group / 2U]) : (bits->scales[group / 2U])) >> (group % 2U * 16U + (unit & 1U) * 8U);
    return Codes_make(((bits->pairs) >> (uint4(group * 2U))) & (uint4(50529027U)), float(code & 15U), float((code >> 4U) & 15U));
}

float2 Q2_K_factors(const Q2_K_Bits thread* bits)
{
    return float2((as_type<half>((ushort)(bits->d))), (as_type<half>((ushort)((bits->d) >> 16U))));
}

Quants Quants_make(uint4 q_1, float scale_1, float min_1)
{
    Quants t1;
    t1.q = q_1;
    t1.scale = scale_1;
    t1.min = min_1;
    return t1;
}

Quants IDotFormat_quants(const Q2_K_Bits thread* bits, uint unit, uint group)
{
    Codes t1 = Q2_K_codes(bits, unit, group);
    float2 t2 = Q2_K_factors(bits);
    return Quants_make(t1.q, t2.x * t1.scale, t2.y * t1.min);
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

Words words_from(ulong address, uint shift)
{
    uint4 a = (*(const device uint4*)((uchar device*)(address - ulong(shift))));
    uint4 b = (*(const device uint4*)((uchar device*)((address + 15ULL) & 18446744073709551600ULL)));
    return Words_make(a, b, (shift & 8U) != 0U, (shift & 4U) != 0U);
}

uint4 load16_of_words(uchar device* p)
{
    ulong address = (ulong)p;
    return words_from(address, uint(address) & 15U).low;
}

uint load4(uchar device* p)
{
    return *(uint device*)(p);
}

Q2_K_Bits Q2_K_Bits_make(uint4 scales, uint4 pairs, uint d)
{
    Q2_K_Bits t1;
    t1.scales = scales;
    t1.pairs = pairs;
    t1.d = d;
    return t1;
}

Q2_K_Bits Q2_K_fetch(uchar device* row, uint unit)
{
    uchar device* block = row + (unit >> 2U) * 84U;
    uint4 pairs = load16_of_words(block + 16 + (unit & 3U) * 16U);
    uint4 t1 = load16_of_words(block);
    uint t2 = load4(block + 80);
    return Q2_K_Bits_make(t1, pairs, t2);
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

array<float4, 4> Q2_K_weights(const Q2_K_Bits thread* bits, uint unit, uint group)
{
    Quants t1 = IDotFormat_quants(bits, unit, group);
    return to_floats(&t1);
}

uint Q2_K_column(uint unit, uint group)
{
    return (unit >> 1U) * 128U + group * 32U + (unit & 1U) * 16U;
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
    if(unit < (given->args.columns / 64U))
    {
        Q2_K_Bits t2 = Q2_K_fetch(row, unit);
        #pragma unroll
        for(uint group = 0U; group < 4U; group++)
        {
            Q2_K_Bits t3 = t2;
            array<float4, 4> t4 = Q2_K_weights(&t3, unit, group);
            float device* t5 = y_1 + Q2_K_column(unit, group);
            #pragma unroll
            for(uint i = 0U; i < 4U; i++)
            {
                *(device float4*)(t5 + i * 4U) = (t4[i]);
            }
        }
    }
}

