// entry matmul, threads 128 1 1
#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(fast)
#include <metal_simdgroup_matrix>
template<typename T, int Cols, int Rows, typename V>
void _slang_simdgroup_fill(thread simdgroup_matrix<T, Cols, Rows>* dest, V val) {
    *dest = make_filled_simdgroup_matrix<T, Cols, Rows>(T(val));
}

template<typename Matrix, typename T>
Matrix _slang_simdgroup_load(const device T* src, ulong elements_per_row) {
    Matrix result;
    simdgroup_load(result, src, elements_per_row);
    return result;
}

template<typename Matrix, typename T>
Matrix _slang_simdgroup_load_transpose(const device T* src, ulong elements_per_row) {
    Matrix result;
    simdgroup_load(result, src, elements_per_row, ulong2(0), true);
    return result;
}

template<typename Matrix, typename T>
Matrix _slang_simdgroup_load(const threadgroup T* src, ulong elements_per_row) {
    Matrix result;
    simdgroup_load(result, src, elements_per_row);
    return result;
}

template<typename Matrix, typename T>
Matrix _slang_simdgroup_load_transpose(const threadgroup T* src, ulong elements_per_row) {
    Matrix result;
    simdgroup_load(result, src, elements_per_row, ulong2(0), true);
    return result;
}

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

Codes Codes_make(uint4 q, float scale, float min)
{
    Codes t1;
    t1.q = q;
    t1.scale = scale;
    t1.min = min;
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

Quants Quants_make(uint4 q, float scale, float min)
{
    Quants t1;
    t1.q = q;
    t1.scale = scale;
    t1.min = min;
    return t1;
}

Quants IDotFormat_quants(const Q2_K_Bits thread* bits, uint unit, uint group)
{
    Codes t1 = Q2_K_codes(bits, unit, group);
    float2 t2 = Q2_K_factors(bits);
    return Quants_make(t1.q, t2.x * t1.scale, t2.y * t1.min);
}

simdgroup_matrix<float, 8, 8> linalg_coopMatMulAdd(simdgroup_matrix<half, 8, 8> matA, simdgroup_matrix<half, 8, 8> matB, simdgroup_matrix<float, 8, 8> matC)
{
    simdgroup_matrix<float, 8, 8> t1;
    simdgroup_multiply_accumulate(t1, matA, matB, matC);
    return t1;
}

uint scaled(uint bytes, half2 scale, half2 min)
{
    half2 t1 = as_type<half2>((bytes & 16711935U) | 1677747200U);
    return as_type<uint>((t1 - half2(1152.0)) * scale - min);
}

array<uint4, 2> halves(const Quants thread* quants)
{
    uint4 t1 = (quants->q) ^ (uint4(2155905152U));
    half2 t2 = half2(half(quants->scale));
    half2 t3 = half2(half(quants->min));
    array<uint, 8> words;
    #pragma unroll
    for(uint i = 0U; i < 4U; i++)
    {
        uint t4 = 2U * i;
        uint t5 = scaled(t1[i], t2, t3);
        words[t4] = t5;
        uint t6 = scaled((t1[i]) >> 8U, t2, t3);
        words[t4 + 1U] = t6;
    }
    return { uint4(words[0], words[1], words[2], words[3]), uint4(words[4], words[5], words[6], words[7]) };
}

array<uint4, 2> group_halves(const Q2_K_Bits thread* bits, uint unit, uint group)
{
    Quants t1 = IDotFormat_quants(bits, unit, group);
    return halves(&t1);
}

struct Mover
{
    uint thread_1;
    uint columns;
    array<uchar device*, 1> weights;
    array<uchar device*, 2> activations;
};

uint Mover_line(const Mover thread* self, uint i)
{
    return (self->thread_1 + i) / 2U;
}

uint row_of(uint i, bool gated)
{
    uint matrix_1 = i / 8U % 4U;
    uint first = i / 32U * 16U;
    return gated ? first + matrix_1 % 2U * 8U + i % 8U : i;
}

bool is_up(uint i, bool gated)
{
    return gated && (i / 8U % 4U) >= 2U;
}

uint Mover_token(const Mover thread* self, uint i)
{
    return (self->thread_1 + i * 128U) / 4U;
}

uint Mover_run(const Mover thread* self, uint i)
{
    return (self->thread_1 + i) % 2U;
}

uint Mover_run_1(const Mover thread* self, uint i)
{
    return (self->thread_1 + i) % 2U;
}

uint Mover_unit(const Mover thread* self, uint step, uint i)
{
    uint t1 = step * 2U;
    uint t2 = Mover_run_1(self, i);
    return (t1 + t2) / 4U;
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

uint Q2_K_column(uint unit, uint group)
{
    return (unit >> 1U) * 128U + group * 32U + (unit & 1U) * 16U;
}

uint2 pack_halves(float4 v)
{
    float4 t1 = clamp(v, float4(-65504.0), float4(65504.0));
    uint t2 = as_type<uint>(half2(t1.xz));
    uint t3 = as_type<uint>(half2(t1.yw));
    return uint2(t2, t3);
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

struct MatmulArgs
{
    uchar device* w;
    uchar device* up;
    uchar device* x;
    Step device* step;
    float device* bias;
    float device* residual;
    float device* y;
    uchar device* halves;
    uint rows;
    uint columns;
    uint tokens;
    uint stride;
    uint row_nbytes;
    uint splits;
    uint adds_bias;
    uint adds_residual;
    uint gated;
    uint writes_halves;
};

struct EntryPointParams
{
    MatmulArgs args;
};

struct Loaded
{
    array<Q2_K_Bits, 1> bits;
    array<uint4, 2> activations;
};

struct KernelContext
{
    EntryPointParams constant* given;
    array<uint4, 320> threadgroup* weight_tile;
    array<uint4, 320> threadgroup* activation_tile;
};

[[kernel]] void matmul(uint thread_index [[thread_index_in_threadgroup]], uint3 group [[threadgroup_position_in_grid]], EntryPointParams constant* given [[buffer(0)]])
{
    Loaded t1;
    Loaded t2;
    KernelContext kernelContext;
    kernelContext.given = given;
    threadgroup array<uint4, 320> weight_tile;
    kernelContext.weight_tile = &weight_tile;
    threadgroup array<uint4, 320> activation_tile;
    kernelContext.activation_tile = &activation_tile;
    bool gated = (given->args.gated) != 0U;
    int t3 = gated ? 32 : 64;
    uint first_token = group.x * 64U;
    uint t4 = group.y * uint(t3);
    if(first_token >= (given->args.step->tokens))
    {
        return;
    }
    Mover mover;
    mover.thread_1 = thread_index;
    mover.columns = given->args.columns;
    #pragma unroll
    for(uint i = 0U; i < 1U; i++)
    {
        Mover t5 = mover;
        uint t6 = Mover_line(&t5, i);
        uint t7 = min(t4 + row_of(t6, gated), given->args.rows - 1U);
        uchar device* t8 = is_up(t6, gated) ? given->args.up : given->args.w;
        mover.weights[i] = t8 + ulong(t7) * ulong(given->args.row_nbytes);
    }
    #pragma unroll
    for(uint i = 0U; i < 2U; i++)
    {
        Mover t9 = mover;
        uint t10 = Mover_token(&t9, i);
        mover.activations[i] = given->args.x + ulong(min(first_token + t10, given->args.tokens - 1U)) * ulong(2U * given->args.stride);
    }
    uint subgroup = thread_index / 32U;
    uint t11 = subgroup / 2U;
    uint t12 = subgroup % 2U;
    simdgroup_matrix<float, 8, 8> sums[4][4];
    #pragma unroll
    for(uint i = 0U; i < 4U; i++)
    {
        #pragma unroll
        for(uint j = 0U; j < 4U; j++)
        {
            simdgroup_matrix<float, 8, 8> t13;
            _slang_simdgroup_fill((&t13), (0.0));
            sums[i][j] = t13;
        }
    }
    uint steps = (given->args.columns + 32U - 1U) / 32U;
    uint t14 = group.z;
    uint begin = t14 * steps / given->args.splits;
    uint t15 = (t14 + 1U) * steps / given->args.splits;
    Mover t16 = mover;
    {
        Loaded loaded;
        #pragma unroll
        for(uint i = 0U; i < 1U; i++)
        {
            Mover t17 = t16;
            uint t18 = Mover_unit(&t17, begin, i);
            Q2_K_Bits t19 = Q2_K_fetch(t16.weights[i], t18);
            loaded.bits[i] = t19;
        }
        uint eighth = t16.thread_1 % 4U;
        uint of = begin * 2U + eighth / 2U;
        uint t20 = Q2_K_column(of / 4U, of % 4U) + eighth % 2U * 8U;
        #pragma unroll
        for(uint i = 0U; i < 2U; i++)
        {
            uint4 t21 = (*(const device uint4*)(t16.activations[i] + 2U * t20));
            loaded.activations[i] = t21;
        }
        t1 = loaded;
    }
    Loaded loaded_1 = t1;
    uint step = begin;
    while(step < t15)
    {
        Mover t22 = mover;
        {
            #pragma unroll
            for(uint i = 0U; i < 1U; i++)
            {
                #pragma unroll
                for(uint g = 0U; g < 1U; g++)
                {
                    Mover t23 = t22;
                    uint t24 = Mover_line(&t23, i);
                    uint t25 = t24 * 5U;
                    Mover t26 = t22;
                    uint t27 = Mover_run(&t26, i);
                    uint at = t25 + 2U * (t27 + g);
                    uint group_1 = (step * 2U + t27 + g) % 4U;
                    Mover t28 = t22;
                    uint t29 = Mover_unit(&t28, step, i);
                    Q2_K_Bits t30 = loaded_1.bits[i];
                    array<uint4, 2> t31 = group_halves(&t30, t29, group_1);
                    (*kernelContext.weight_tile)[at] = t31[0];
                    (*kernelContext.weight_tile)[at + 1U] = t31[1];
                }
            }
            #pragma unroll
            for(uint i_1 = 0U; i_1 < 2U; i_1++)
            {
                Mover t32 = t22;
                uint t33 = Mover_token(&t32, i_1);
                (*kernelContext.activation_tile)[t33 * 5U + t22.thread_1 % 4U] = loaded_1.activations[i_1];
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        Mover t34 = mover;
        uint t35 = step + 1U;
        uint t36 = min(t35, t15 - 1U);
        {
            Loaded loaded_2;
            #pragma unroll
            for(uint g = 0U; g < 1U; g++)
            {
                Mover t37 = t34;
                uint t38 = Mover_unit(&t37, t36, g);
                Q2_K_Bits t39 = Q2_K_fetch(t34.weights[g], t38);
                loaded_2.bits[g] = t39;
            }
            uint eighth_1 = t34.thread_1 % 4U;
            uint of_1 = t36 * 2U + eighth_1 / 2U;
            uint t40 = Q2_K_column(of_1 / 4U, of_1 % 4U) + eighth_1 % 2U * 8U;
            #pragma unroll
            for(uint j = 0U; j < 2U; j++)
            {
                uint4 t41 = (*(const device uint4*)(t34.activations[j] + 2U * t40));
                loaded_2.activations[j] = t41;
            }
            t2 = loaded_2;
        }
        #pragma unroll
        for(uint k = 0U; k < 32U; k += 8U)
        {
            simdgroup_matrix<half, 8, 8> a[4];
            #pragma unroll
            for(uint j_1 = 0U; j_1 < 4U; j_1++)
            {
                simdgroup_matrix<half, 8, 8> t42 = _slang_simdgroup_load<simdgroup_matrix<half, 8, 8>>((const threadgroup half*)&(*(kernelContext.activation_tile))[((t12 * 4U + j_1) * 8U * 5U + k / 8U)], 8 * (5U));
                a[j_1] = t42;
            }
            #pragma unroll
            for(uint i_2 = 0U; i_2 < 4U; i_2++)
            {
                simdgroup_matrix<half, 8, 8> t43 = _slang_simdgroup_load_transpose<simdgroup_matrix<half, 8, 8>>((const threadgroup half*)&(*(kernelContext.weight_tile))[((t11 * 4U + i_2) * 8U * 5U + k / 8U)], 8 * (5U));
                #pragma unroll
                for(uint j_2 = 0U; j_2 < 4U; j_2++)
                {
                    simdgroup_matrix<float, 8, 8> t44 = linalg_coopMatMulAdd(a[j_2], t43, sums[i_2][j_2]);
                    sums[i_2][j_2] = t44;
                }
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        loaded_1 = t2;
        step = t35;
    }
    float device* t45 = given->args.y + ulong(t14) * ulong(given->args.tokens) * ulong(given->args.rows);
    uint t46 = subgroup * 32U;
    uint i = gated ? 2U : 4U;
    uint t47 = i * 4U;
    for(uint g = 0U; g < t47; g++)
    {
        simdgroup_barrier(mem_flags::mem_threadgroup);
        #pragma unroll
        for(uint i_1 = 0U; i_1 < 4U; i_1++)
        {
            #pragma unroll
            for(uint j = 0U; j < 4U; j++)
            {
                uint t48 = i_1 * 4U + j;
                if(t48 == g)
                {
                    simdgroup_store((sums[i_1][j]), (threadgroup float*)&(*(kernelContext.weight_tile))[(t46)], 4 * (2U));
                }
                else
                {
                    bool t49 = gated && t48 == (g + t47);
                    if(t49)
                    {
                        simdgroup_store((sums[i_1][j]), (threadgroup float*)&(*(kernelContext.weight_tile))[(t46 + 16U)], 4 * (2U));
                    }
                }
            }
        }
        simdgroup_barrier(mem_flags::mem_threadgroup);
        for(uint j = thread_index % 32U; j < 16U; j += 32U)
        {
            uint token = first_token + (t12 * 4U + g % 4U) * 8U + j / 2U;
            uint row = t4 + (t11 * i + g / 4U) * 8U + j % 2U * 4U;
            bool t49 = token >= (given->args.tokens) || row >= (given->args.rows);
            if(t49)
            {
                continue;
            }
            float4 sum = as_type<float4>((*kernelContext.weight_tile)[t46 + j]);
            float4 sum_1 = gated ? sum / (float4(1.0) + exp(- sum)) * (as_type<float4>((*kernelContext.weight_tile)[t46 + 16U + j])) : sum;
            float4 sum_2 = (given->args.adds_bias) != 0U ? sum_1 + load_columns(given->args.bias, row / 4U, given->args.rows) : sum_1;
            ulong at_1 = ulong(token) * ulong(given->args.rows);
            float4 sum_3 = (given->args.adds_residual) != 0U ? sum_2 + load_columns(given->args.residual + at_1, row / 4U, given->args.rows) : sum_2;
            store_columns(t45 + at_1, row / 4U, given->args.rows, sum_3);
            if((given->args.writes_halves) != 0U)
            {
                uchar device* t50 = given->args.halves + 2ULL * (at_1 + ulong(row));
                uint2 t51 = pack_halves(sum_3);
                *(device uint2*)(t50) = (t51);
            }
        }
    }
}

