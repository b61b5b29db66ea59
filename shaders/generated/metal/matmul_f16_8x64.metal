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

simdgroup_matrix<float, 8, 8> linalg_coopMatMulAdd(simdgroup_matrix<half, 8, 8> matA, simdgroup_matrix<half, 8, 8> matB, simdgroup_matrix<float, 8, 8> matC)
{
    simdgroup_matrix<float, 8, 8> t1;
    simdgroup_multiply_accumulate(t1, matA, matB, matC);
    return t1;
}

struct F16_Bits
{
    array<uint4, 2> v;
};

array<float4, 4> F16_weights(const F16_Bits thread* bits, uint unit, uint group)
{
    array<float4, 4> w;
    #pragma unroll
    for(uint i = 0U; i < 4U; i++)
    {
        uint t1 = i % 2U * 2U;
        w[i] = float4((as_type<half>((ushort)((bits->v[i / 2U][t1]) & 65535U))), (as_type<half>((ushort)((bits->v[i / 2U][t1]) >> 16U))), (as_type<half>((ushort)((bits->v[i / 2U][t1 + 1U]) & 65535U))), (as_type<half>((ushort)((bits->v[i / 2U][t1 + 1U]) >> 16U))));
    }
    return w;
}

uint2 pack_halves(float4 v)
{
    float4 t1 = clamp(v, float4(-65504.0), float4(65504.0));
    uint t2 = as_type<uint>(half2(t1.xz));
    uint t3 = as_type<uint>(half2(t1.yw));
    return uint2(t2, t3);
}

array<uint4, 2> halves(const array<float4, 4> thread* w)
{
    uint2 t1 = pack_halves((*w)[0]);
    uint2 t2 = pack_halves((*w)[1]);
    uint4 t3 = uint4(t1, t2);
    uint2 t4 = pack_halves((*w)[2]);
    uint2 t5 = pack_halves((*w)[3]);
    return { t3, uint4(t4, t5) };
}

array<uint4, 2> group_halves(const F16_Bits thread* bits, uint unit, uint group)
{
    array<float4, 4> t1 = F16_weights(bits, unit, group);
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
    return t1 + Mover_run_1(self, i);
}

uint Mover_units(const Mover thread* self)
{
    return self->columns / 16U;
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

uint4 load16_anywhere(uchar device* p)
{
    ulong address = (ulong)p;
    uint shift = uint(address) & 15U;
    Words words = words_from(address, shift);
    uint bits = (shift & 3U) * 8U;
    return ((words.low) >> (uint4(bits))) | (((words.high) << (uint4(1U))) << (uint4(31U - bits)));
}

F16_Bits F16_fetch(uchar device* row, uint unit)
{
    F16_Bits bits;
    uchar device* t1 = row + unit * 32U;
    if((uint((ulong)row) & 15U) == 0U)
    {
        #pragma unroll
        for(uint i = 0U; i < 2U; i++)
        {
            uint4 t2 = (*(const device uint4*)(t1 + i * 16U));
            bits.v[i] = t2;
        }
    }
    else
    {
        #pragma unroll
        for(uint i = 0U; i < 2U; i++)
        {
            uint4 t3 = load16_anywhere(t1 + i * 16U);
            bits.v[i] = t3;
        }
    }
    return bits;
}

bool Mover_has(const Mover thread* self, uint unit)
{
    return unit < Mover_units(self);
}

uint F16_column(uint unit, uint group)
{
    return unit * 16U;
}

uint load2(uchar device* p)
{
    return uint(*(ushort device*)(p));
}

float load_half(uchar device* p)
{
    uint t1 = load2(p);
    return as_type<half>((ushort)(t1));
}

float F16_weight(uchar device* row, uint column)
{
    return load_half(row + column * 2U);
}

array<uint4, 2> Mover_left_over(const Mover thread* self, uchar device* row, uint first)
{
    float4 t1 = float4(0.0);
    array<float4, 4> w;
    w[0] = float4(0.0, 0.0, 0.0, 0.0);
    w[1] = t1;
    w[2] = t1;
    w[3] = t1;
    uint k = 0U;
    for(;;)
    {
        uint t2 = first + k;
        if(!(t2 < (self->columns)))
        {
            break;
        }
        float t3 = F16_weight(row, t2);
        w[k / 4U][k % 4U] = t3;
        k = k + 1U;
    }
    array<float4, 4> t4 = w;
    return halves(&t4);
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
    array<F16_Bits, 1> bits;
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
            Mover t19 = t16;
            if(Mover_has(&t19, t18))
            {
                F16_Bits t20 = F16_fetch(t16.weights[i], t18);
                loaded.bits[i] = t20;
            }
        }
        uint eighth = t16.thread_1 % 4U;
        uint of = begin * 2U + eighth / 2U;
        uint t21 = F16_column(of, of % 1U) + eighth % 2U * 8U;
        #pragma unroll
        for(uint i = 0U; i < 2U; i++)
        {
            uint4 t22 = (*(const device uint4*)(t16.activations[i] + 2U * t21));
            loaded.activations[i] = t22;
        }
        t1 = loaded;
    }
    Loaded loaded_1 = t1;
    uint step = begin;
    while(step < t15)
    {
        Mover t23 = mover;
        {
            #pragma unroll
            for(uint i = 0U; i < 1U; i++)
            {
                #pragma unroll
                for(uint g = 0U; g < 1U; g++)
                {
                    Mover t24 = t23;
                    uint t25 = Mover_line(&t24, i);
                    uint t26 = t25 * 5U;
                    Mover t27 = t23;
                    uint t28 = Mover_run(&t27, i);
                    uint at = t26 + 2U * (t28 + g);
                    uint group_1 = (step * 2U + t28 + g) % 1U;
                    Mover t29 = t23;
                    uint t30 = Mover_unit(&t29, step, i);
                    Mover t31 = t23;
                    bool t32 = Mover_has(&t31, t30);
                    array<uint4, 2> w;
                    if(t32)
                    {
                        F16_Bits t33 = loaded_1.bits[i];
                        w = group_halves(&t33, t30, group_1);
                    }
                    else
                    {
                        uint t34 = 16U * t30;
                        Mover t35 = t23;
                        w = Mover_left_over(&t35, t23.weights[i], t34);
                    }
                    (*kernelContext.weight_tile)[at] = w[0];
                    (*kernelContext.weight_tile)[at + 1U] = w[1];
                }
            }
            #pragma unroll
            for(uint i_1 = 0U; i_1 < 2U; i_1++)
            {
                Mover t36 = t23;
                uint t37 = Mover_token(&t36, i_1);
                (*kernelContext.activation_tile)[t37 * 5U + t23.thread_1 % 4U] = loaded_1.activations[i_1];
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        Mover t38 = mover;
        uint t39 = step + 1U;
        uint t40 = min(t39, t15 - 1U);
        {
            Loaded loaded_2;
            #pragma unroll
            for(uint g = 0U; g < 1U; g++)
            {
                Mover t41 = t38;
                uint t42 = Mover_unit(&t41, t40, g);
                Mover t43 = t38;
                if(Mover_has(&t43, t42))
                {
                    F16_Bits t44 = F16_fetch(t38.weights[g], t42);
                    loaded_2.bits[g] = t44;
                }
            }
            uint eighth_1 = t38.thread_1 % 4U;
            uint of_1 = t40 * 2U + eighth_1 / 2U;
            uint t45 = F16_column(of_1, of_1 % 1U) + eighth_1 % 2U * 8U;
            #pragma unroll
            for(uint j = 0U; j < 2U; j++)
            {
                uint4 t46 = (*(const device uint4*)(t38.activations[j] + 2U * t45));
                loaded_2.activations[j] = t46;
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
                simdgroup_matrix<half, 8, 8> t47 = _slang_simdgroup_load<simdgroup_matrix<half, 8, 8>>((const threadgroup half*)&(*(kernelContext.activation_tile))[((t12 * 4U + j_1) * 8U * 5U + k / 8U)], 8 * (5U));
                a[j_1] = t47;
            }
            #pragma unroll
            for(uint i_2 = 0U; i_2 < 4U; i_2++)
            {
                simdgroup_matrix<half, 8, 8> t48 = _slang_simdgroup_load_transpose<simdgroup_matrix<half, 8, 8>>((const threadgroup half*)&(*(kernelContext.weight_tile))[((t11 * 4U + i_2) * 8U * 5U + k / 8U)], 8 * (5U));
                #pragma unroll
                for(uint j_2 = 0U; j_2 < 4U; j_2++)
                {
                    simdgroup_matrix<float, 8, 8> t49 = linalg_coopMatMulAdd(a[j_2], t48, sums[i_2][j_2]);
                    sums[i_2][j_2] = t49;
                }
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        loaded_1 = t2;
        step = t39;
    }
    float device* t50 = given->args.y + ulong(t14) * ulong(given->args.tokens) * ulong(given->args.rows);
    uint t51 = subgroup * 32U;
    uint i = gated ? 2U : 4U;
    uint t52 = i * 4U;
    for(uint g = 0U; g < t52; g++)
    {
        simdgroup_barrier(mem_flags::mem_threadgroup);
        #pragma unroll
        for(uint i_1 = 0U; i_1 < 4U; i_1++)
        {
            #pragma unroll
            for(uint j = 0U; j < 4U; j++)
            {
                uint t53 = i_1 * 4U + j;
                if(t53 == g)
                {
                    simdgroup_store((sums[i_1][j]), (threadgroup float*)&(*(kernelContext.weight_tile))[(t51)], 4 * (2U));
                }
                else
                {
                    bool t54 = gated && t53 == (g + t52);
                    if(t54)
                    {
                        simdgroup_store((sums[i_1][j]), (threadgroup float*)&(*(kernelContext.weight_tile))[(t51 + 16U)], 4 * (2U));
                    }
                }
            }
        }
        simdgroup_barrier(mem_flags::mem_threadgroup);
        for(uint j = thread_index % 32U; j < 16U; j += 32U)
        {
            uint token = first_token + (t12 * 4U + g % 4U) * 8U + j / 2U;
            uint row = t4 + (t11 * i + g / 4U) * 8U + j % 2U * 4U;
            bool t54 = token >= (given->args.tokens) || row >= (given->args.rows);
            if(t54)
            {
                continue;
            }
            float4 sum = as_type<float4>((*kernelContext.weight_tile)[t51 + j]);
            float4 sum_1 = gated ? sum / (float4(1.0) + exp(- sum)) * (as_type<float4>((*kernelContext.weight_tile)[t51 + 16U + j])) : sum;
            float4 sum_2 = (given->args.adds_bias) != 0U ? sum_1 + load_columns(given->args.bias, row / 4U, given->args.rows) : sum_1;
            ulong at_1 = ulong(token) * ulong(given->args.rows);
            float4 sum_3 = (given->args.adds_residual) != 0U ? sum_2 + load_columns(given->args.residual + at_1, row / 4U, given->args.rows) : sum_2;
            store_columns(t50 + at_1, row / 4U, given->args.rows, sum_3);
            if((given->args.writes_halves) != 0U)
            {
                uchar device* t55 = given->args.halves + 2ULL * (at_1 + ulong(row));
                uint2 t56 = pack_halves(sum_3);
                *(device uint2*)(t55) = (t56);
            }
        }
    }
}

