// simdgroup_matrix: every lane holds two neighbours of a row, where Apple's GPUs are known to (MLX,
// mlx/backend/metal/kernels/steel/gemm/mma.h); they meet where matrices are multiplied.
template <class T, int Columns = 8, int Rows = 8> struct simdgroup_matrix {
    static_assert(Columns == 8 && Rows == 8, "simdgroup_matrix: only 8x8 exists");
    T elements[2];
    T (&thread_elements())[2] { return elements; }
};
using simdgroup_float8x8 = simdgroup_matrix<float, 8, 8>;
using simdgroup_half8x8 = simdgroup_matrix<half, 8, 8>;

template <class T> struct plain { using type = __remove_cv(T); };
#ifndef SHIM_FLAT
template <class T> struct plain<device T> { using type = __remove_cv(T); };
template <class T> struct plain<threadgroup T> { using type = __remove_cv(T); };
template <class T> struct plain<const device T> { using type = T; };
template <class T> struct plain<const threadgroup T> { using type = T; };
#endif

inline uint matrix_row(uint lane) { return (lane / 16) * 4 + lane / 2 % 4; }
inline uint matrix_column(uint lane) { return lane / 8 % 2 * 4 + lane % 2 * 2; }
inline uint matrix_lane(uint row, uint column) { return row / 4 * 16 + column / 4 * 8 + row % 4 * 2 + column / 2 % 2; }

template <class T, int Columns, int Rows> simdgroup_matrix<T> make_filled_simdgroup_matrix(T value) { return {{value, value}}; }

template <class T, class P>
void simdgroup_load(simdgroup_matrix<T> &to, P *from, ulong stride = 8, ulong2 origin = ulong2{0, 0}, bool transposed = false) {
    static_assert(__is_same(T, typename plain<P>::type), "simdgroup_load: the pointer is to other elements");
    for (ulong i = 0; i < 2; i++) {
        ulong row = matrix_row(shim_place->lane), column = matrix_column(shim_place->lane) + i;
        to.elements[i] = from[(origin.y + (transposed ? column : row)) * stride + origin.x + (transposed ? row : column)];
    }
}

template <class T, class P>
void simdgroup_store(const simdgroup_matrix<T> &from, P *to, ulong stride = 8, ulong2 origin = ulong2{0, 0}, bool transposed = false) {
    static_assert(__is_same(T, typename plain<P>::type), "simdgroup_store: the pointer is to other elements");
    for (ulong i = 0; i < 2; i++) {
        ulong row = matrix_row(shim_place->lane), column = matrix_column(shim_place->lane) + i;
        to[(origin.y + (transposed ? column : row)) * stride + origin.x + (transposed ? row : column)] = from.elements[i];
    }
}

template <class D, class A, class B, class C>
void matrix_multiply(simdgroup_matrix<D> &d, const simdgroup_matrix<A> &a, const simdgroup_matrix<B> &b, const simdgroup_matrix<C> &c, const ShimSite *site) {
    struct Both {
        A left[2];
        B right[2];
    } mine = {{a.elements[0], a.elements[1]}, {b.elements[0], b.elements[1]}};
    ShimExchange *all = shim_exchange(&mine, sizeof mine, site);
    if (shim_place->width != 32 || all->lanes != 0xffffffff) shim_fault("%s:%u: a matrix that not all of 32 lanes hold", site->file, site->line);
    uint row = matrix_row(shim_place->lane), column = matrix_column(shim_place->lane);
    float sums[2] = {(float)c.elements[0], (float)c.elements[1]};
    for (uint k = 0; k < 8; k++) {
        auto left = (const Both *)all->values[matrix_lane(row, k)], right = (const Both *)all->values[matrix_lane(k, column)];
        for (uint i = 0; i < 2; i++) sums[i] += (float)left->left[k % 2] * (float)right->right[i];
    }
    for (uint i = 0; i < 2; i++) d.elements[i] = (D)sums[i];
}
#define simdgroup_multiply_accumulate(d, a, b, c) matrix_multiply(d, a, b, c, SHIM_SITE)
