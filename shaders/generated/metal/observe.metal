// entry observe, threads 64 1 1
#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(fast)
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

struct ObserveArgs
{
    float device* x;
    Step device* step;
    float device* sums;
    uint columns;
};

struct EntryPointParams
{
    ObserveArgs args;
};

[[kernel]] void observe(uint3 id [[thread_position_in_grid]], EntryPointParams constant* given [[buffer(0)]])
{
    uint t1 = id.x;
    if(t1 >= (given->args.columns))
    {
        return;
    }
    float sum = 0.0;
    for(uint t = 0U; t < (given->args.step->tokens); t++)
    {
        float device* t2 = given->args.x + (t * given->args.columns + t1);
        sum = sum + *t2 * *t2;
    }
    float device* t3 = given->args.sums + t1;
    *t3 = *t3 + sum;
}

