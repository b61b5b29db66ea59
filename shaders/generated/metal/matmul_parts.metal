// entry matmul_parts, threads 64 1 1
#include <metal_stdlib>
using namespace metal;
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

void store_columns(float device* row, uint i, uint columns, float4 values)
{
    if((columns & 3U) == 0U)
    {
        *(device float4*)(row + 4U * i) = (values);
        return;
    }
    uint t1 = 4U * i;
    for(uint k = 0U; k < (min(4U, columns - t1)); k++)
    {
        *(row + (t1 + k)) = values[k];
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

