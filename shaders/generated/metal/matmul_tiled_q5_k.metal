// entry matmul_tiled, threads 16 16 1
#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(fast)
struct Quants
{
    uint4 q;
    float scale;
    float min;
};

struct Q5_K_Bits
{
    uint4 head;
    uint4 fifths;
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

Codes Q5_K_codes(const Q5_K_Bits thread* bits, uint unit, uint group)
{
    uint2 pair = scales_and_mins(bits->head, (unit >> 1U) & 3U);
    return Codes_make((((bits->nibbles) >> (uint4(group * 4U))) & (uint4(252645135U))) | ((((bits->fifths) >> (uint4((unit & 6U) + group))) & (uint4(16843009U))) << (uint4(4U))), byte_of(pair.x, group), byte_of(pair.y, group));
}

float2 Q5_K_factors(const Q5_K_Bits thread* bits)
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

Quants IDotFormat_quants(const Q5_K_Bits thread* bits, uint unit, uint group)
{
    Codes t1 = Q5_K_codes(bits, unit, group);
    float2 t2 = Q5_K_factors(bits);
    return Quants_make(t1.q, t2.x * t1.scale, t2.y * t1.min);
}

Q5_K_Bits Q5_K_Bits_make(uint4 head, uint4 fifths, uint4 nibbles)
{
    Q5_K_Bits t1;
    t1.head = head;
    t1.fifths = fifths;
    t1.nibbles = nibbles;
    return t1;
}

Q5_K_Bits Q5_K_fetch(uchar device* row, uint unit)
{
    uchar device* block = row + (unit >> 3U) * 176U;
    uint4 fifths = (*(const device uint4*)(block + 16 + (unit & 1U) * 16U));
    uint4 t1 = (*(const device uint4*)(block));
    uint4 t2 = (*(const device uint4*)(block + 48 + (unit & 7U) * 16U));
    return Q5_K_Bits_make(t1, fifths, t2);
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

array<float4, 4> Q5_K_weights(const Q5_K_Bits thread* bits, uint unit, uint group)
{
    Quants t1 = IDotFormat_quants(bits, unit, group);
    return to_floats(&t1);
}

array<float4, 4> decode(uchar device* row, uint run, uint columns)
{
    uint unit = run / 2U;
    Q5_K_Bits t1 = Q5_K_fetch(row, unit);
    uint t2 = run % 2U;
    Q5_K_Bits t3 = t1;
    return Q5_K_weights(&t3, unit, t2);
}

uint Q5_K_column(uint unit, uint group)
{
    return (unit >> 1U) * 64U + group * 32U + (unit & 1U) * 16U;
}

float4 load_columns(float device* row, uint i, uint columns)
{
    if((columns & 3U) == 0U)
    {
        return (*(const device float4*)(row + 4U * i));
    }
    float4 loaded = float4(0.0);
    uint t1 = 4U * i;
    for(uint k = 0U; k < (min(4U, columns - t1)); k++)
    {
        loaded[k] = *(row + (t1 + k));
    }
    return loaded;
}

array<float4, 4> activations(float device* row, uint run, uint columns)
{
    uint t1 = Q5_K_column(run / 2U, run % 2U) / 4U;
    array<float4, 4> x;
    #pragma unroll
    for(uint i = 0U; i < 4U; i++)
    {
        float4 t2 = load_columns(row, t1 + i, columns);
        x[i] = t2;
    }
    return x;
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

struct MatmulTiledArgs
{
    uchar device* w;
    uchar device* up;
    float device* x;
    Step device* step;
    float device* bias;
    float device* residual;
    float device* y;
    uint rows;
    uint columns;
    uint tokens;
    uint row_nbytes;
    uint adds_bias;
    uint adds_residual;
    uint gated;
};

struct EntryPointParams
{
    MatmulTiledArgs args;
};

struct KernelContext
{
    EntryPointParams constant* given;
    array<array<float, 64>, 32> threadgroup* weight_tile;
    array<array<float, 64>, 32> threadgroup* activation_tile;
};

[[kernel]] void matmul_tiled(uint thread_index [[thread_index_in_threadgroup]], uint3 group [[threadgroup_position_in_grid]], EntryPointParams constant* given [[buffer(0)]])
{
    KernelContext kernelContext;
    kernelContext.given = given;
    threadgroup array<array<float, 64>, 32> weight_tile;
    kernelContext.weight_tile = &weight_tile;
    threadgroup array<array<float, 64>, 32> activation_tile;
    kernelContext.activation_tile = &activation_tile;
    bool gated = (given->args.gated) != 0U;
    uint rows = gated ? 32U : 64U;
    uint first_token = group.x * 64U;
    uint first_row = group.y * rows;
    if(first_token >= (given->args.step->tokens))
    {
        return;
    }
    uint line = thread_index % 64U;
    uint t1 = thread_index / 64U % 2U;
    bool t2 = thread_index < 128U;
    rows = gated ? line / 4U * 2U + line % 2U : line;
    uint row = first_row + rows;
    bool t3 = gated && (line % 4U) >= 2U;
    uchar device* t4 = t3 ? given->args.up : given->args.w;
    uchar device* t5 = t4 + ulong(min(row, given->args.rows - 1U)) * ulong(given->args.row_nbytes);
    float device* t6 = given->args.x + ulong(min(first_token + line, given->args.tokens - 1U)) * ulong(given->args.columns);
    uint t7 = thread_index % 16U * 4U;
    uint t8 = thread_index / 16U * 4U;
    float4 t9 = float4(0.0);
    array<float4, 4> sums;
    sums[0] = float4(0.0, 0.0, 0.0, 0.0);
    sums[1] = t9;
    sums[2] = t9;
    sums[3] = t9;
    for(uint column = 0U; column < (given->args.columns); column += 32U)
    {
        uint run = column / 16U + t1;
        array<float4, 4> loaded = t2 ? decode(t5, run, given->args.columns) : activations(t6, run, given->args.columns);
        #pragma unroll
        for(uint k = 0U; k < 16U; k++)
        {
            if(t2)
            {
                (*kernelContext.weight_tile)[t1 * 16U + k][line] = loaded[k / 4U][k % 4U];
            }
            else
            {
                (*kernelContext.activation_tile)[t1 * 16U + k][line] = loaded[k / 4U][k % 4U];
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for(uint k_1 = 0U; k_1 < 32U; k_1++)
        {
            float4 t10 = float4((*kernelContext.weight_tile)[k_1][t7], (*kernelContext.weight_tile)[k_1][t7 + 1U], (*kernelContext.weight_tile)[k_1][t7 + 2U], (*kernelContext.weight_tile)[k_1][t7 + 3U]);
            #pragma unroll
            for(uint i = 0U; i < 4U; i++)
            {
                sums[i] = sums[i] + float4((*kernelContext.activation_tile)[k_1][t8 + i]) * t10;
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    #pragma unroll
    for(uint k_1 = 0U; k_1 < 4U; k_1++)
    {
        uint token = first_token + t8 + k_1;
        if(token >= (given->args.tokens))
        {
            return;
        }
        ulong t11 = ulong(token) * ulong(given->args.rows);
        #pragma unroll
        for(uint k = 0U; k < 4U; k++)
        {
            rows = gated ? t7 / 2U : t7;
            uint row_1 = first_row + rows + k;
            t3 = row_1 >= (given->args.rows) || (gated && k >= 2U);
            if(t3)
            {
                continue;
            }
            float sum = sums[k_1][k];
            float sum_1 = gated ? sum / (1.0 + exp(- sum)) * sums[k_1][k ^ 2U] : sum;
            float sum_2 = (given->args.adds_bias) != 0U ? sum_1 + *(given->args.bias + row_1) : sum_1;
            float sum_3 = (given->args.adds_residual) != 0U ? sum_2 + *(given->args.residual + (t11 + ulong(row_1))) : sum_2;
            *(given->args.y + (t11 + ulong(row_1))) = sum_3;
        }
    }
}

