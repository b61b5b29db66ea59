// entry add, threads 256 1 1
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

struct AddArgs
{
    float device* a;
    float device* b;
    float device* out;
    uint columns;
};

struct EntryPointParams
{
    AddArgs args;
};

[[kernel]] void add(uint3 id [[thread_position_in_grid]], EntryPointParams constant* given [[buffer(0)]])
{
    uint t1 = id.x;
    if((4U * t1) >= (given->args.columns))
    {
        return;
    }
    uint row = id.y * given->args.columns;
    float4 a = load_columns(given->args.a + row, t1, given->args.columns);
    float4 b = load_columns(given->args.b + row, t1, given->args.columns);
    store_columns(given->args.out + row, t1, given->args.columns, a + b);
}

