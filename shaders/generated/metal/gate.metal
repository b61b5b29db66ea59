// entry gate, threads 256 1 1
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

struct GateArgs
{
    float device* a;
    float device* b;
    float device* out;
    uint columns;
};

struct EntryPointParams
{
    GateArgs args;
};

[[kernel]] void gate(uint3 id [[thread_position_in_grid]], EntryPointParams constant* given [[buffer(0)]])
{
    uint t1 = id.x;
    if((4U * t1) >= (given->args.columns))
    {
        return;
    }
    uint row_1 = id.y * given->args.columns;
    float4 a = load_columns(given->args.a + row_1, t1, given->args.columns);
    float4 b = load_columns(given->args.b + row_1, t1, given->args.columns);
    store_columns(given->args.out + row_1, t1, given->args.columns, a / (float4(1.0) + exp(- a)) * b);
}

