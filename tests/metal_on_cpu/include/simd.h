// Barriers, and what lanes of a SIMD-group do together. A macro knows where it was written.
enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags((int)a | (int)b); }

#define threadgroup_barrier(flags) ((void)(flags), shim_barrier(SHIM_SITE))
#define simdgroup_barrier(flags) ((void)(flags), shim_simdgroup_barrier(SHIM_SITE))

template <class T> T lane_value(const ShimExchange *all, uint lane) {
    T value;
    __builtin_memcpy(&value, all->values[lane], sizeof value);
    return value;
}

// The first lane to go on folds what all gave; the others take its result.
template <class T, class F> T simd_reduce(T value, const ShimSite *site, F fold) {
    static_assert(sizeof(T) <= 16);
    ShimExchange *all = shim_exchange(&value, sizeof value, site);
    if (!all->reduced) {
        bool first = true;
        for (uint lane = 0; lane < 64; lane++) {
            if (!(all->lanes >> lane & 1)) continue;
            value = first ? lane_value<T>(all, lane) : fold(value, lane_value<T>(all, lane));
            first = false;
        }
        __builtin_memcpy(all->result, &value, sizeof value);
        all->reduced = true;
    }
    __builtin_memcpy(&value, all->result, sizeof value);
    return value;
}

template <class T> T simd_from(T value, uint lane, const ShimSite *site) {
    static_assert(sizeof(T) <= 16);
    ShimExchange *all = shim_exchange(&value, sizeof value, site);
    if (lane >= shim_place->width || !(all->lanes >> lane & 1))
        shim_fault("%s:%u: lane %u is asked for its value, and does not take part", site->file, site->line, lane);
    return lane_value<T>(all, lane);
}

template <class T> T simd_prefix(T value, const ShimSite *site, bool inclusive) {
    T sum = 0;
    ShimExchange *all = shim_exchange(&value, sizeof value, site);
    for (uint lane = 0; lane < shim_place->lane + inclusive; lane++)
        if (all->lanes >> lane & 1) sum = sum + lane_value<T>(all, lane);
    return sum;
}

#define simd_sum(v) simd_reduce(v, SHIM_SITE, [](auto a, auto b) { return a + b; })
#define simd_product(v) simd_reduce(v, SHIM_SITE, [](auto a, auto b) { return a * b; })
#define simd_max(v) simd_reduce(v, SHIM_SITE, [](auto a, auto b) { return max(a, b); })
#define simd_min(v) simd_reduce(v, SHIM_SITE, [](auto a, auto b) { return min(a, b); })
#define simd_and(v) simd_reduce(v, SHIM_SITE, [](auto a, auto b) { return a & b; })
#define simd_or(v) simd_reduce(v, SHIM_SITE, [](auto a, auto b) { return a | b; })
#define simd_xor(v) simd_reduce(v, SHIM_SITE, [](auto a, auto b) { return a ^ b; })
#define simd_all(v) simd_reduce((bool)(v), SHIM_SITE, [](bool a, bool b) { return a && b; })
#define simd_any(v) simd_reduce((bool)(v), SHIM_SITE, [](bool a, bool b) { return a || b; })
#define simd_prefix_exclusive_sum(v) simd_prefix(v, SHIM_SITE, false)
#define simd_prefix_inclusive_sum(v) simd_prefix(v, SHIM_SITE, true)
#define simd_shuffle(v, lane) simd_from(v, lane, SHIM_SITE)
#define simd_broadcast(v, lane) simd_from(v, lane, SHIM_SITE)
#define simd_broadcast_first(v) simd_reduce(v, SHIM_SITE, [](auto a, auto) { return a; })
#define simd_shuffle_xor(v, mask) simd_from(v, shim_place->lane ^ (mask), SHIM_SITE)
#define simd_shuffle_down(v, by) simd_from(v, shim_place->lane + (by), SHIM_SITE)
#define simd_shuffle_up(v, by) simd_from(v, shim_place->lane - (by), SHIM_SITE)
// True for the first lane of those that take part: which these are, the shim does not know between
// operations, so all must.
inline bool simd_is_first() { return shim_place->lane == 0; }
