// entry embed, threads 64 1 1
#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(fast)
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

struct F32_Bits
{
    array<uint4, 4> v;
};

F32_Bits F32_fetch(uchar device* row, uint unit)
{
    F32_Bits bits;
    uchar device* t1 = row + unit * 64U;
    if((uint((ulong)row) & 15U) == 0U)
    {
        #pragma unroll
        for(uint i = 0U; i < 4U; i++)
        {
            uint4 t2 = (*(const device uint4*)(t1 + i * 16U));
            bits.v[i] = t2;
        }
    }
    else
    {
        #pragma unroll
        for(uint i = 0U; i < 4U; i++)
        {
            uint4 t3 = load16_of_words(t1 + i * 16U);
            bits.v[i] = t3;
        }
    }
    return bits;
}

array<float4, 4> F32_weights(const F32_Bits thread* bits, uint unit, uint group)
{
    array<float4, 4> w;
    #pragma unroll
    for(uint i = 0U; i < 4U; i++)
    {
        w[i] = as_type<float4>(bits->v[i]);
    }
    return w;
}

uint F32_column(uint unit, uint group)
{
    return unit * 16U;
}

uint load4(uchar device* p)
{
    return *(uint device*)(p);
}

float F32_weight(uchar device* row, uint column)
{
    uint t1 = load4(row + column * 4U);
    return as_type<float>(t1);
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
    uint units = given->args.columns / 16U;
    uint unit = at.x;
    if(unit < units)
    {
        F32_Bits t2 = F32_fetch(row, unit);
        #pragma unroll
        for(uint group = 0U; group < 1U; group++)
        {
            F32_Bits t3 = t2;
            array<float4, 4> t4 = F32_weights(&t3, unit, group);
            float device* t5 = y_1 + F32_column(unit, group);
            #pragma unroll
            for(uint i = 0U; i < 4U; i++)
            {
                #pragma unroll
                for(uint k = 0U; k < 4U; k++)
                {
                    *(t5 + (i * 4U + k)) = t4[i][k];
                }
            }
        }
    }
    else
    {
        uint column = units * 16U + unit - units;
        if(column < (given->args.columns))
        {
            float device* t6 = y_1 + column;
            float t7 = F32_weight(row, column);
            *t6 = t7;
        }
    }
}

