// entry rows, threads 256 1 1
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

struct RowsArgs
{
    float device* x;
    Step device* step;
    float device* out;
    uint columns;
};

struct EntryPointParams
{
    RowsArgs args;
};

[[kernel]] void rows(uint3 id [[thread_position_in_grid]], EntryPointParams constant* given [[buffer(0)]])
{
    uint t1 = id.x;
    if((4U * t1) >= (given->args.columns) || (id.y) >= (given->args.step->rows))
    {
        return;
    }
    uint t2 = id.y;
    float device* to = given->args.out + t2 * given->args.columns;
    RowsArgs t3 = given->args;
    float4 t4 = load_columns(given->args.x + (given->args.step->tokens - given->args.step->rows + t2) * given->args.columns, t1, given->args.columns);
    store_columns(to, t1, t3.columns, t4);
}

