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

uint4 load16_anywhere(uchar device* p)
{
    ulong address = (ulong)p;
    uint shift = uint(address) & 15U;
    Words words = words_from(address, shift);
    uint bits = (shift & 3U) * 8U;
    return ((words.low) >> (uint4(bits))) | (((words.high) << (uint4(1U))) << (uint4(31U - bits)));
}

struct BF16_Bits
{
    array<uint4, 2> v;
};

BF16_Bits BF16_fetch(uchar device* row, uint unit)
{
    BF16_Bits bits;
    uchar device* t1 = row + unit * 32U;
    if((uint((ulong)row) & 15U) == 0U)
    {
        #pragma unroll
        for(uint i = 0U; i < 2U; i++)
        {
            uint4 t2 = (*(const device uint4*)(t1 + i * 16U));
            bits.v[i] = t2;
        }
    }
    else
    {
        #pragma unroll
        for(uint i = 0U; i < 2U; i++)
        {
            uint4 t3 = load16_anywhere(t1 + i * 16U);
            bits.v[i] = t3;
        }
    }
    return bits;
}

array<float4, 4> BF16_weights(const BF16_Bits thread* bits, uint unit, uint group)
{
    array<float4, 4> w;
    #pragma unroll
    for(uint i = 0U; i < 4U; i++)
    {
        uint t1 = i % 2U * 2U;
        w[i] = as_type<float4>(uint4((bits->v[i / 2U][t1]) << 16U, (bits->v[i / 2U][t1]) & 4294901760U, (bits->v[i / 2U][t1 + 1U]) << 16U, (bits->v[i / 2U][t1 + 1U]) & 4294901760U));
    }
    return w;
}

uint BF16_column(uint unit, uint group)
{
    return unit * 16U;
}

uint load2(uchar device* p)
{
    return uint(*(ushort device*)(p));
}

float BF16_weight(uchar device* row, uint column)
{
    uint t1 = load2(row + column * 2U);
    return as_type<float>(t1 << 16U);
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
        BF16_Bits t2 = BF16_fetch(row, unit);
        #pragma unroll
        for(uint group = 0U; group < 1U; group++)
        {
            BF16_Bits t3 = t2;
            array<float4, 4> t4 = BF16_weights(&t3, unit, group);
            float device* t5 = y_1 + BF16_column(unit, group);
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
            float t7 = BF16_weight(row, column);
            *t6 = t7;
        }
    }
}

