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

struct Q4_1_Bits
{
    uint head;
    uint4 nibbles;
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

Codes Q4_1_codes(const Q4_1_Bits thread* bits, uint unit, uint group)
{
    return Codes_make(((bits->nibbles) >> (uint4(group * 4U))) & (uint4(252645135U)), 1.0, 1.0);
}

float2 Q4_1_factors(const Q4_1_Bits thread* bits)
{
    return float2((as_type<half>((ushort)((bits->head) & 65535U))), - (as_type<half>((ushort)((bits->head) >> 16U))));
}

Quants Quants_make(uint4 q_1, float scale_1, float min_1)
{
    Quants t1;
    t1.q = q_1;
    t1.scale = scale_1;
    t1.min = min_1;
    return t1;
}

Quants IDotFormat_quants(const Q4_1_Bits thread* bits, uint unit, uint group)
{
    Codes t1 = Q4_1_codes(bits, unit, group);
    float2 t2 = Q4_1_factors(bits);
    return Quants_make(t1.q, t2.x * t1.scale, t2.y * t1.min);
}

uint load4(uchar device* p)
{
    return *(uint device*)(p);
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

Q4_1_Bits Q4_1_Bits_make(uint head, uint4 nibbles)
{
    Q4_1_Bits t1;
    t1.head = head;
    t1.nibbles = nibbles;
    return t1;
}

Q4_1_Bits Q4_1_fetch(uchar device* row, uint unit)
{
    uchar device* block = row + unit * 20U;
    uint t1 = load4(block);
    uint4 t2 = load16_of_words(block + 4);
    return Q4_1_Bits_make(t1, t2);
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

array<float4, 4> Q4_1_weights(const Q4_1_Bits thread* bits, uint unit, uint group)
{
    Quants t1 = IDotFormat_quants(bits, unit, group);
    return to_floats(&t1);
}

uint Q4_1_column(uint unit, uint group)
{
    return unit * 32U + group * 16U;
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
        Q4_1_Bits t2 = Q4_1_fetch(row, unit);
        #pragma unroll
        for(uint group = 0U; group < 2U; group++)
        {
            Q4_1_Bits t3 = t2;
            array<float4, 4> t4 = Q4_1_weights(&t3, unit, group);
            float device* t5 = y_1 + Q4_1_column(unit, group);
            #pragma unroll
            for(uint i = 0U; i < 4U; i++)
            {
                *(device float4*)(t5 + i * 4U) = (t4[i]);
            }
        }
    }
}

