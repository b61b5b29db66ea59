// Vectors of two to four, and what MSL writes as a constructor: float4(a, b) is make_float4(a, b).
template <class T> constexpr int width_of = 1;
template <class T> struct element { using type = T; };

template <class To, class From> To convert_vector(From from) {
    if constexpr (width_of<From> == 1) {
        return (To)(typename element<To>::type)from;
    } else {
        static_assert(width_of<From> == width_of<To>, "a vector constructor has other elements");
        return __builtin_convertvector(from, To);
    }
}

// Deleted are the calls that C++ would take by spreading a scalar over a vector.
#define VECTORS(T, PACKED) \
    typedef T T##2 __attribute__((ext_vector_type(2))); \
    typedef T T##3 __attribute__((ext_vector_type(3))); \
    typedef T T##4 __attribute__((ext_vector_type(4))); \
    typedef T PACKED##2 __attribute__((ext_vector_type(2), aligned(sizeof(T)))); \
    typedef T PACKED##4 __attribute__((ext_vector_type(4), aligned(sizeof(T)))); \
    template <> inline constexpr int width_of<T##2> = 2; \
    template <> inline constexpr int width_of<T##3> = 3; \
    template <> inline constexpr int width_of<T##4> = 4; \
    template <> struct element<T##2> { using type = T; }; \
    template <> struct element<T##3> { using type = T; }; \
    template <> struct element<T##4> { using type = T; }; \
    template <class From> inline T##2 make_##T##2(From v) { return convert_vector<T##2>(v); } \
    template <class From> inline T##3 make_##T##3(From v) { return convert_vector<T##3>(v); } \
    template <class From> inline T##4 make_##T##4(From v) { return convert_vector<T##4>(v); } \
    inline T##2 make_##T##2(T a, T b) { return T##2{a, b}; } \
    inline T##3 make_##T##3(T a, T b, T c) { return T##3{a, b, c}; } \
    inline T##3 make_##T##3(T##2 a, T b) { return T##3{a.x, a.y, b}; } \
    inline T##3 make_##T##3(T a, T##2 b) { return T##3{a, b.x, b.y}; } \
    void make_##T##3(T, T) = delete; \
    inline T##4 make_##T##4(T a, T b, T c, T d) { return T##4{a, b, c, d}; } \
    inline T##4 make_##T##4(T##2 a, T##2 b) { return T##4{a.x, a.y, b.x, b.y}; } \
    inline T##4 make_##T##4(T##3 a, T b) { return T##4{a.x, a.y, a.z, b}; } \
    inline T##4 make_##T##4(T a, T##3 b) { return T##4{a, b.x, b.y, b.z}; } \
    void make_##T##4(T, T) = delete; \
    void make_##T##4(T##2, T) = delete; \
    void make_##T##4(T, T##2) = delete; \
    inline T##4 make_##T##4(T##2 a, T b, T c) { return T##4{a.x, a.y, b, c}; } \
    inline T##4 make_##T##4(T a, T##2 b, T c) { return T##4{a, b.x, b.y, c}; } \
    inline T##4 make_##T##4(T a, T b, T##2 c) { return T##4{a, b, c.x, c.y}; } \
    void make_##T##4(T, T, T) = delete;
VECTORS(float, packed_float)
VECTORS(half, packed_half)
VECTORS(int, packed_int)
VECTORS(uint, packed_uint)
VECTORS(short, packed_short)
VECTORS(ushort, packed_ushort)
VECTORS(char, packed_char)
VECTORS(uchar, packed_uchar)
VECTORS(long, packed_long)
VECTORS(ulong, packed_ulong)
#undef VECTORS

template <class To, class From> To as_type(From from) {
    static_assert(sizeof(To) == sizeof(From), "as_type: the sizes differ");
    return __builtin_bit_cast(To, from);
}
