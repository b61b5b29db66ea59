// Atomics on 32 bits, relaxed, as MSL has no others.
enum memory_order { memory_order_relaxed };
struct atomic_uint {
    uint value;
};
struct atomic_int {
    int value;
};

// Threads take turns only where they wait, so that a plain operation is atomic; but for the checks
// it is not one that is plain.
template <class P, class F> [[gnu::noinline, clang::no_sanitize("coverage")]] auto atomic_change(P *p, F change) {
    auto *value = (decltype(p->value + 0) *)(ulong)p;
    shim_atomic(value);
    auto before = *value;
    *value = change(before);
    return before;
}
#define ATOMIC(NAME, RESULT) \
    template <class P, class V> auto atomic_fetch_##NAME##_explicit(P *p, V v, memory_order) { \
        return atomic_change(p, [v](auto old) { return (decltype(old))(RESULT); }); \
    }
ATOMIC(add, old + v)
ATOMIC(sub, old - v)
ATOMIC(or, old | v)
ATOMIC(and, old & v)
ATOMIC(max, old > (decltype(old))v ? old : v)
ATOMIC(min, old < (decltype(old))v ? old : v)
ATOMIC(set, v)
#undef ATOMIC
template <class P> auto atomic_load_explicit(P *p, memory_order) { return atomic_change(p, [](auto old) { return old; }); }
template <class P, class V> void atomic_store_explicit(P *p, V v, memory_order order) { atomic_fetch_set_explicit(p, v, order); }
template <class P, class V> auto atomic_exchange_explicit(P *p, V v, memory_order order) { return atomic_fetch_set_explicit(p, v, order); }
