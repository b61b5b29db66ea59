// entry bias, threads 256 1 1
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

struct BiasArgs
{
    float device* x;
    float device* weight;
    float device* out;
    uint columns;
};

struct EntryPointParams
{
    BiasArgs args;
};

[[kernel]] void bias(uint3 id [[thread_position_in_grid]], EntryPointParams constant* given [[buffer(0)]])
{
    uint t1 = id.x;
    if((4U * t1) >= (given->args.columns))
    {
        return;
    }
    uint row = id.y * given->args.columns;
    float4 x_1 = load_columns(given->args.x + row, t1, given->args.columns);
    float device* t2 = given->args.out + row;
    BiasArgs t3 = given->args;
    float4 t4 = load_columns(given->args.weight, t1, given->args.columns);
    store_columns(t2, t1, t3.columns, x_1 + t4);
}

