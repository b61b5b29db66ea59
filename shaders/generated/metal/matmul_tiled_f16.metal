// entry matmul_tiled, threads 16 16 1
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

struct F16_Bits
{
    array<uint4, 2> v;
};

F16_Bits F16_fetch(uchar device* row, uint unit)
{
    F16_Bits bits;
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

array<float4, 4> F16_weights(const F16_Bits thread* bits, uint unit, uint group)
{
    array<float4, 4> w;
    #pragma unroll
    for(uint i = 0U; i < 4U; i++)
    {
        uint t1 = i % 2U * 2U;
        w[i] = float4((as_type<half>((ushort)((bits->v[i / 2U][t1]) & 65535U))), (as_type<half>((ushort)((bits->v[i / 2U][t1]) >> 16U))), (as_type<half>((ushort)((bits->v[i / 2U][t1 + 1U]) & 65535U))), (as_type<half>((ushort)((bits->v[i / 2U][t1 + 1U]) >> 16U))));
    }
    return w;
}

uint load2(uchar device* p)
{
    return uint(*(ushort device*)(p));
}

float load_half(uchar device* p)
{
    uint t1 = load2(p);
    return as_type<half>((ushort)(t1));
}

float F16_weight(uchar device* row, uint column)
{
    return load_half(row + column * 2U);
}

array<float4, 4> decode(uchar device* row, uint run, uint columns)
{
    uint t1 = 16U * run;
    if(run < (columns / 16U))
    {
        F16_Bits t2 = F16_fetch(row, run);
        uint t3 = run % 1U;
        F16_Bits t4 = t2;
        return F16_weights(&t4, run, t3);
    }
    float4 t5 = float4(0.0);
    array<float4, 4> w;
    w[0] = float4(0.0, 0.0, 0.0, 0.0);
    w[1] = t5;
    w[2] = t5;
    w[3] = t5;
    uint k = 0U;
    for(;;)
    {
        uint t6 = t1 + k;
        if(!(t6 < columns))
        {
            break;
        }
        float t7 = F16_weight(row, t6);
        w[k / 4U][k % 4U] = t7;
        k = k + 1U;
    }
    return w;
}

uint F16_column(uint unit, uint group)
{
    return unit * 16U;
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
    uint t1 = F16_column(run, run % 1U) / 4U;
    array<float4, 4> x;
    #pragma unroll
    for(uint i = 0U; i < 4U; i++)
    {
        uint t2 = t1 + i;
        float4 t3 = (4U * t2) < columns ? load_columns(row, t2, columns) : float4(0.0);
        x[i] = t3;
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

