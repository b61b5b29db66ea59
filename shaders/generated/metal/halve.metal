// entry halve, threads 64 1 1
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

uint2 pack_halves(float4 v)
{
    float4 t1 = clamp(v, float4(-65504.0), float4(65504.0));
    uint t2 = as_type<uint>(half2(t1.xz));
    uint t3 = as_type<uint>(half2(t1.yw));
    return uint2(t2, t3);
}

uint2 load_halves(float device* row_1, uint four, uint columns_1)
{
    if((4U * four) >= columns_1)
    {
        return uint2(int2(0));
    }
    float4 t1 = load_columns(row_1, four, columns_1);
    return pack_halves(t1);
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

struct HalveArgs
{
    float device* x;
    Step device* step;
    uchar device* halves;
    uint columns;
    uint stride;
};

struct EntryPointParams
{
    HalveArgs args;
};

[[kernel]] void halve(uint3 at [[thread_position_in_grid]], EntryPointParams constant* given [[buffer(0)]])
{
    uint t1 = at.x;
    uint t2 = 8U * t1;
    if(t2 >= (given->args.stride) || (at.y) >= (given->args.step->tokens))
    {
        return;
    }
    ulong t3 = ulong(at.y);
    float device* row_1 = given->args.x + t3 * ulong(given->args.columns);
    uint t4 = 2U * t1;
    uint2 t5 = load_halves(row_1, t4, given->args.columns);
    uint2 t6 = load_halves(row_1, t4 + 1U, given->args.columns);
    *(device uint4*)(given->args.halves + 2ULL * (t3 * ulong(given->args.stride) + ulong(t2))) = (uint4(t5, t6));
}

