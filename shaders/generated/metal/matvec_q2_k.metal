// entry matvec, threads constant 0
#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(fast)
struct Quants
{
    uint4 q;
    float scale;
    float min;
};

struct Q2_K_Bits
{
    uint4 scales;
    uint4 pairs;
    uint d;
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

Codes Q2_K_codes(const Q2_K_Bits thread* bits, uint unit, uint group)
{
    uint code = (((unit & 2U) != 0U) ? (bits->scales[2U + group / 2U]) : (bits->scales[group / 2U])) >> (group % 2U * 16U + (unit & 1U) * 8U);
    return Codes_make(((bits->pairs) >> (uint4(group * 2U))) & (uint4(50529027U)), float(code & 15U), float((code >> 4U) & 15U));
}

float2 Q2_K_factors(const Q2_K_Bits thread* bits)
{
    return float2((as_type<half>((ushort)(bits->d))), (as_type<half>((ushort)((bits->d) >> 16U))));
}

Quants Quants_make(uint4 q_1, float scale_1, float min_1)
{
    Quants t1;
    t1.q = q_1;
    t1.scale = scale_1;
    t1.min = min_1;
    return t1;
}

Quants IDotFormat_quants(const Q2_K_Bits thread* bits, uint unit, uint group)
{
    Codes t1 = Q2_K_codes(bits, unit, group);
    float2 t2 = Q2_K_factors(bits);
    return Quants_make(t1.q, t2.x * t1.scale, t2.y * t1.min);
}

constant uint fc_THREADS [[function_constant(0)]];
constant uint THREADS = is_function_constant_defined(fc_THREADS) ? fc_THREADS : 128U;
constant uint fc_TEAM [[function_constant(1)]];
constant uint TEAM = is_function_constant_defined(fc_TEAM) ? fc_TEAM : 32U;
constant uint fc_PAIRED [[function_constant(3)]];
constant bool PAIRED = is_function_constant_defined(fc_PAIRED) ? fc_PAIRED != 0U : false;
uint Team_rows()
{
    int t1 = PAIRED ? 2 : 1;
    return uint(t1);
}

uint Team_place_of(uint thread_1)
{
    uint t1 = thread_1 / TEAM;
    return t1 * Team_rows();
}

constant uint fc_GATED [[function_constant(2)]];
constant bool GATED = is_function_constant_defined(fc_GATED) ? fc_GATED != 0U : false;
bool Team_has(uint matrix_1, uint r)
{
    bool t1 = matrix_1 == 0U || GATED;
    t1 = t1 && (r == 0U || PAIRED);
    return t1;
}

struct Team
{
    uint lane;
    uint row;
    uint token;
    array<float, 4> sums;
    array<float, 2> bias;
    array<float, 2> residual;
};

struct MatvecArgs
{
    uchar device* x;
    uchar device* w;
    uchar device* up;
    float device* bias;
    float device* residual;
    float device* y;
    float device* weight;
    uchar device* made;
    uint columns;
    uint rows;
    uint row_nbytes;
    uint tokens;
    uint adds_bias;
    uint adds_residual;
    uint weighs;
    uint parts;
    float epsilon;
};

uint Team_held(const Team thread* self, const MatvecArgs constant* args, uint t)
{
    return self->token;
}

Team Team_make(const MatvecArgs constant* args, uint3 group, uint thread_1)
{
    Team t1;
    t1.lane = thread_1 % TEAM;
    uint t2 = (group.y * 32768U + group.x) * (THREADS / TEAM) * Team_rows();
    t1.row = t2 + Team_place_of(thread_1);
    t1.token = group.z;
    #pragma unroll
    for(uint i = 0U; i < 4U; i++)
    {
        t1.sums[i] = 0.0;
    }
    #pragma unroll
    for(uint r = 0U; r < 2U; r++)
    {
        if(!Team_has(0U, r))
        {
            continue;
        }
        uint t3 = args->rows;
        uint t4 = min(t1.row + r, args->rows - 1U);
        t1.bias[r] = 0.0;
        if((args->adds_bias) != 0U)
        {
            t1.bias[r] = *(args->bias + t4);
        }
        #pragma unroll
        for(uint t = 0U; t < 1U; t++)
        {
            t1.residual[r + t] = 0.0;
            if((args->adds_residual) != 0U)
            {
                Team t5 = t1;
                uint t6 = Team_held(&t5, args, t);
                t1.residual[r + t] = *(args->residual + (t6 * t3 + t4));
            }
        }
    }
    return t1;
}

uchar device* Team_weights(const Team thread* self, const MatvecArgs constant* args, uint matrix_1, uint r)
{
    uchar device* w = matrix_1 == 0U ? args->w : args->up;
    return w + ulong(min(self->row + r, args->rows - 1U)) * ulong(args->row_nbytes);
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

uint load4(uchar device* p)
{
    return *(uint device*)(p);
}

Q2_K_Bits Q2_K_Bits_make(uint4 scales, uint4 pairs, uint d)
{
    Q2_K_Bits t1;
    t1.scales = scales;
    t1.pairs = pairs;
    t1.d = d;
    return t1;
}

Q2_K_Bits Q2_K_fetch(uchar device* row, uint unit)
{
    uchar device* block = row + (unit >> 2U) * 84U;
    uint4 pairs = load16_of_words(block + 16 + (unit & 3U) * 16U);
    uint4 t1 = load16_of_words(block);
    uint t2 = load4(block + 80);
    return Q2_K_Bits_make(t1, pairs, t2);
}

uint Team_activations(const Team thread* self, const MatvecArgs constant* args, uint t)
{
    uint t1 = Team_held(self, args, t);
    return t1 * args->columns;
}

uint Q2_K_column(uint unit, uint group)
{
    return (unit >> 1U) * 128U + group * 32U + (unit & 1U) * 16U;
}

array<float4, 4> load_x(float device* x, uint columns)
{
    array<float4, 4> loaded;
    #pragma unroll
    for(uint i = 0U; i < 4U; i++)
    {
        float4 t1 = (*(const device float4*)(x + i * 4U));
        loaded[i] = t1;
    }
    return loaded;
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

array<float4, 4> Q2_K_weights(const Q2_K_Bits thread* bits, uint unit, uint group)
{
    Quants t1 = IDotFormat_quants(bits, unit, group);
    return to_floats(&t1);
}

uint Team_place(uint matrix_1, uint r, uint t)
{
    return matrix_1 * 2U + r + t;
}

bool Team_has_sum(uint i)
{
    return Team_has(i / 2U, i % 2U);
}

struct EntryPointParams
{
    MatvecArgs args;
};

struct KernelContext
{
    EntryPointParams constant* given;
    uint simd_lanes;
    array<float, 128> threadgroup* parts;
};

void add_up(Team thread* team, uint thread_1, KernelContext thread* kernelContext)
{
    uint t1 = kernelContext->simd_lanes;
    #pragma unroll
    for(uint i = 0U; i < 4U; i++)
    {
        if(Team_has_sum(i))
        {
            float t2 = simd_sum(team->sums[i]);
            team->sums[i] = t2;
        }
    }
    if(TEAM == t1)
    {
        return;
    }
    #pragma unroll
    for(uint i = 0U; i < 4U; i++)
    {
        if(Team_has_sum(i) && simd_is_first())
        {
            uint t3 = i * 32U;
            uint t4 = thread_1 / t1;
            (*kernelContext->parts)[t3 + t4] = team->sums[i];
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint t5 = thread_1 / TEAM;
    uint t6 = TEAM / t1;
    uint t7 = t5 * t6;
    #pragma unroll
    for(uint i = 0U; i < 4U; i++)
    {
        if(!Team_has_sum(i))
        {
            continue;
        }
        team->sums[i] = 0.0;
        uint t8 = TEAM / t1;
        for(uint k = 0U; k < t8; k++)
        {
            team->sums[i] = team->sums[i] + (*kernelContext->parts)[i * 32U + t7 + k];
        }
    }
}

void finish(const MatvecArgs constant* args, Team thread* team, uint thread_1, float scale_1, KernelContext thread* kernelContext)
{
    add_up(team, thread_1, kernelContext);
    #pragma unroll
    for(uint r = 0U; r < 2U; r++)
    {
        if(!Team_has(0U, r))
        {
            continue;
        }
        #pragma unroll
        for(uint t = 0U; t < 1U; t++)
        {
            float sum = scale_1 * team->sums[Team_place(0U, r, t)];
            float sum_1 = GATED ? sum / (1.0 + exp(- sum)) * (scale_1 * team->sums[Team_place(1U, r, t)]) : sum;
            float sum_2 = sum_1 + (team->bias[r] + team->residual[r + t]);
            team->sums[Team_place(0U, r, t)] = sum_2;
            uint row = team->row + r;
            uint token = team->token + t;
            if((team->lane) == 0U && row < (args->rows))
            {
                *(args->y + (token * args->rows + row)) = sum_2;
            }
        }
    }
}

[[kernel]] void matvec(uint thread_index [[thread_index_in_threadgroup]], uint3 group [[threadgroup_position_in_grid]], uint _builtinWaveLaneCount_0 [[threads_per_simdgroup]], EntryPointParams constant* given [[buffer(0)]])
{
    KernelContext kernelContext;
    kernelContext.given = given;
    threadgroup array<float, 128> parts;
    kernelContext.parts = &parts;
    kernelContext.simd_lanes = _builtinWaveLaneCount_0;
    Team team = Team_make(&given->args, group, thread_index);
    float device* t1 = (float device*)(given->args.x);
    uint units = given->args.columns / 64U;
    for(uint unit = team.lane; unit < units; unit += TEAM)
    {
        array<Q2_K_Bits, 4> bits;
        #pragma unroll
        for(uint m = 0U; m < 2U; m++)
        {
            #pragma unroll
            for(uint r = 0U; r < 2U; r++)
            {
                if(Team_has(m, r))
                {
                    Team t2 = team;
                    uchar device* t3 = Team_weights(&t2, &given->args, m, r);
                    Q2_K_Bits t4 = Q2_K_fetch(t3, unit);
                    bits[m * 2U + r] = t4;
                }
            }
        }
        #pragma unroll
        for(uint g = 0U; g < 4U; g++)
        {
            array<array<float4, 4>, 1> loaded;
            #pragma unroll
            for(uint t = 0U; t < 1U; t++)
            {
                Team t5 = team;
                uint t6 = Team_activations(&t5, &given->args, t);
                array<float4, 4> t7 = load_x(t1 + t6 + Q2_K_column(unit, g), given->args.columns);
                loaded[t] = t7;
            }
            #pragma unroll
            for(uint m_1 = 0U; m_1 < 2U; m_1++)
            {
                #pragma unroll
                for(uint r = 0U; r < 2U; r++)
                {
                    if(Team_has(m_1, r))
                    {
                        Q2_K_Bits t8 = bits[m_1 * 2U + r];
                        array<float4, 4> t9 = Q2_K_weights(&t8, unit, g);
                        #pragma unroll
                        for(uint t_1 = 0U; t_1 < 1U; t_1++)
                        {
                            float sum = 0.0;
                            #pragma unroll
                            for(uint i = 0U; i < 4U; i++)
                            {
                                sum = sum + dot(t9[i], loaded[t_1][i]);
                            }
                            team.sums[Team_place(m_1, r, t_1)] = team.sums[Team_place(m_1, r, t_1)] + sum;
                        }
                    }
                }
            }
        }
    }
    finish(&given->args, &team, thread_index, 1.0, &kernelContext);
}

