// Functions of scalars and of vectors, element by element.
template <class T, class F> T each(T a, F f) {
    if constexpr (width_of<T> == 1) return f(a);
    else {
        T result;
        for (int i = 0; i < width_of<T>; i++) result[i] = f(a[i]);
        return result;
    }
}

#define EACH(NAME, FLOAT) \
    inline float NAME(float a) { return FLOAT(a); } \
    inline half NAME(half a) { return (half)FLOAT((float)a); } \
    template <class T> requires(width_of<T> > 1) T NAME(T a) { return each(a, [](auto x) { return NAME(x); }); }
EACH(exp, __builtin_expf)
EACH(exp2, __builtin_exp2f)
EACH(log, __builtin_logf)
EACH(log2, __builtin_log2f)
EACH(sqrt, __builtin_sqrtf)
EACH(sin, __builtin_sinf)
EACH(cos, __builtin_cosf)
EACH(tanh, __builtin_tanhf)
EACH(floor, __builtin_floorf)
EACH(ceil, __builtin_ceilf)
EACH(trunc, __builtin_truncf)
EACH(rint, __builtin_rintf)
EACH(round, __builtin_roundf)
EACH(fabs, __builtin_fabsf)
EACH(rsqrt, 1.0f / __builtin_sqrtf)
#undef EACH
inline float pow(float a, float b) { return __builtin_powf(a, b); }
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
template <class T> T fma(T a, T b, T c) { return __builtin_elementwise_fma(a, b, c); }
template <class T> bool isfinite(T a) { return __builtin_isfinite(a); }
template <class T> bool isnan(T a) { return __builtin_isnan(a); }
template <class T> bool isinf(T a) { return __builtin_isinf(a); }

template <class T> T abs(T a) { return __builtin_elementwise_abs(a); }
template <class T> T min(T a, T b) { return __builtin_elementwise_min(a, b); }
template <class T> T max(T a, T b) { return __builtin_elementwise_max(a, b); }
template <class T> T clamp(T a, T low, T high) { return min(max(a, low), high); }
template <class T> T select(T no, T yes, bool condition) { return condition ? yes : no; }
template <class T> bool any(T a) { return __builtin_reduce_or(a) != 0; }
template <class T> bool all(T a) {
    bool every = true;
    for (int i = 0; i < width_of<T>; i++) every = every && a[i];
    return every;
}
template <class T> uint popcount(T a) { return __builtin_popcountg(a); }
template <class T> uint clz(T a) { return a ? __builtin_clzg(a) : 8 * sizeof(T); }
template <class T> uint ctz(T a) { return a ? __builtin_ctzg(a) : 8 * sizeof(T); }

template <class T> auto dot(T a, T b) {
    auto sum = a[0] * b[0];
    for (int i = 1; i < width_of<T>; i++) sum += a[i] * b[i];
    return sum;
}

namespace fast { using metal::exp, metal::exp2, metal::log, metal::sqrt, metal::rsqrt, metal::sin, metal::cos, metal::tanh; }
namespace precise { using metal::exp, metal::exp2, metal::log, metal::sqrt, metal::rsqrt, metal::sin, metal::cos, metal::tanh; }
