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

array<float4, 4> decode(uchar device* row, uint run, uint columns)
{
    uint unit = run / 2U;
    Q4_1_Bits t1 = Q4_1_fetch(row, unit);
    uint t2 = run % 2U;
    Q4_1_Bits t3 = t1;
    return Q4_1_weights(&t3, unit, t2);
}

uint Q4_1_column(uint unit, uint group)
{
    return unit * 32U + group * 16U;
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
    uint t1 = Q4_1_column(run / 2U, run % 2U) / 4U;
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

