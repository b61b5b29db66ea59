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

struct Q4_K_Bits
{
    uint4 head;
    uint4 nibbles;
};

struct Codes
{
    uint4 q;
    float scale;
    float min;
};

uint2 scales_and_mins(uint4 head, uint pair)
{
    uint shift = (pair & 1U) * 16U;
    uint a = (head.y) >> shift;
    uint b = (head.z) >> shift;
    uint c = (head.w) >> shift;
    bool t1 = pair < 2U;
    return uint2((t1 ? (a & 16191U) : ((c & 3855U) | ((a >> 2U) & 12336U))), (t1 ? (b & 16191U) : (((c >> 4U) & 3855U) | ((b >> 2U) & 12336U))));
}

float byte_of(uint word, uint number)
{
    return float((word >> (number * 8U)) & 255U);
}

Codes Codes_make(uint4 q_1, float scale_1, float min_1)
{
    Codes t1;
    t1.q = q_1;
    t1.scale = scale_1;
    t1.min = min_1;
    return t1;
}

Codes Q4_K_codes(const Q4_K_Bits thread* bits, uint unit, uint group)
{
    uint2 pair = scales_and_mins(bits->head, (unit >> 1U) & 3U);
    return Codes_make(((bits->nibbles) >> (uint4(group * 4U))) & (uint4(252645135U)), byte_of(pair.x, group), byte_of(pair.y, group));
}

float2 Q4_K_factors(const Q4_K_Bits thread* bits)
{
    uint t1 = bits->head.x;
    return float2((as_type<half>((ushort)(t1))), (as_type<half>((ushort)(t1 >> 16U))));
}

Quants Quants_make(uint4 q_1, float scale_1, float min_1)
{
    Quants t1;
    t1.q = q_1;
    t1.scale = scale_1;
    t1.min = min_1;
    return t1;
}

Quants IDotFormat_quants(const Q4_K_Bits thread* bits, uint unit, uint group)
{
    Codes t1 = Q4_K_codes(bits, unit, group);
    float2 t2 = Q4_K_factors(bits);
    return Quants_make(t1.q, t2.x * t1.scale, t2.y * t1.min);
}

Q4_K_Bits Q4_K_Bits_make(uint4 head, uint4 nibbles)
{
    Q4_K_Bits t1;
    t1.head = head;
    t1.nibbles = nibbles;
    return t1;
}

Q4_K_Bits Q4_K_fetch(uchar device* row, uint unit)
{
    uchar device* block = row + (unit >> 3U) * 144U;
    uint4 t1 = (*(const device uint4*)(block));
    uint4 t2 = (*(const device uint4*)(block + 16 + (unit & 7U) * 16U));
    return Q4_K_Bits_make(t1, t2);
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

array<float4, 4> Q4_K_weights(const Q4_K_Bits thread* bits, uint unit, uint group)
{
    Quants t1 = IDotFormat_quants(bits, unit, group);
    return to_floats(&t1);
}

uint Q4_K_column(uint unit, uint group)
{
    return (unit >> 1U) * 64U + group * 32U + (unit & 1U) * 16U;
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
        Q4_K_Bits t2 = Q4_K_fetch(row, unit);
        #pragma unroll
        for(uint group = 0U; group < 2U; group++)
        {
            Q4_K_Bits t3 = t2;
            array<float4, 4> t4 = Q4_K_weights(&t3, unit, group);
            float device* t5 = y_1 + Q4_K_column(unit, group);
            #pragma unroll
            for(uint i = 0U; i < 4U; i++)
            {
                *(device float4*)(t5 + i * 4U) = (t4[i]);
            }
        }
    }
}

