// entry matmul_parts, threads 64 1 1
#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(fast)
float4 load_columns(float device* row, uint i, uint columns)
{
    if((columns & 3U) == 0U)
    {
        float4 _S1 = ((*(const device float4*)((row + 4U * i))));
        return _S1;
    }
    float4 loaded = float4(0.0);
    uint k = 0U;
    for(;;)
    {
        uint _S2 = 4U * i;
        if(k < (min(4U, columns - _S2)))
        {
        }
        else
        {
            break;
        }
        loaded[k] = *(row + (_S2 + k));
        k = k + 1U;
    }
    return loaded;
}

void store_columns(float device* row_1, uint i_1, uint columns_1, float4 values)
{
    if((columns_1 & 3U) == 0U)
    {
        *(device float4*)(row_1 + 4U * i_1) = (values);
        return;
    }
    uint t1 = 4U * i_1;
    for(uint k_1 = 0U; k_1 < (min(4U, columns_1 - t1)); k_1++)
    {
        *(row_1 + (t1 + k_1)) = values[k_1];
    }
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

struct MatmulPartsArgs
{
    float device* parts;
    Step device* step;
    float device* bias;
    float device* residual;
    float device* y;
    uint rows;
    uint tokens;
    uint splits;
    uint adds_bias;
    uint adds_residual;
};

struct EntryPointParams
{
    MatmulPartsArgs args;
};

[[kernel]] void matmul_parts(uint3 at [[thread_position_in_grid]], EntryPointParams constant* given [[buffer(0)]])
{
    uint t1 = at.x;
    if((4U * t1) >= (given->args.rows) || (at.y) >= (given->args.step->tokens))
    {
        return;
    }
    ulong line = ulong(at.y) * ulong(given->args.rows);
    float4 t2 = float4(0.0);
    float4 sum = t2;
    for(uint split = 0U; split < (given->args.splits); split++)
    {
        sum = sum + (load_columns(given->args.parts + (ulong(split) * ulong(given->args.tokens) * ulong(given->args.rows) + line), t1, given->args.rows));
    }
    if((given->args.adds_bias) != 0U)
    {
        sum = sum + load_columns(given->args.bias, t1, given->args.rows);
    }
    if((given->args.adds_residual) != 0U)
    {
        sum = sum + load_columns(given->args.residual + line, t1, given->args.rows);
    }
    store_columns(given->args.y + line, t1, given->args.rows, sum);
}

