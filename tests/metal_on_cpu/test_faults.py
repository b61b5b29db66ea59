"""What the CPU shim catches: faults planted in one kernel, and what a host may do wrong."""

import struct

import numpy as np
import pytest
from numpy.typing import NDArray

from metal_on_cpu.library import ShaderError, compile_library, missing

pytestmark = [pytest.mark.device, pytest.mark.metal]

# out[i] = in[reversed i] + the sum over the SIMD-group, for whole groups of 64.
SOURCE = """// entry turn, threads 64 1 1
#include <metal_stdlib>
using namespace metal;
constant uint fc_ADD [[function_constant(0)]];
constant uint ADD = is_function_constant_defined(fc_ADD) ? fc_ADD : 7U;
constant array<float, int(2)> TABLE = {0.5, 0.25};
struct Pair { float first; float second; };
struct Args { float device* in; float device* out; uint count; };
struct Parameters { Args a; };
void put(threadgroup array<float, int(64)>* to, uint at, float value) { (*to)[at] = value; }
[[kernel]] void turn(
    uint3 group [[threadgroup_position_in_grid]], uint t [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], Parameters constant* given [[buffer(0)]])
{
    threadgroup array<float, int(64)> turned;
    Args a = given->a;
    thread Pair pair = {1.0, 2.0};
    put(&turned, t, a.in[group.x * 64U + t]);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float sum = simd_sum(float(lane)) + float(ADD) + pair.first * TABLE[0];
    float4 four = float4(float2(sum, 1.0), 2.0, 3.0);
    if (t < a.count) a.out[group.x * 64U + t] = turned[63U - t] + four.x;
}
"""
BARRIER = "    threadgroup_barrier(mem_flags::mem_threadgroup);\n"
LAST = "    if (t < a.count)"


@pytest.fixture(autouse=True)
def _compiler() -> None:
    if (why := missing()) is not None:
        pytest.skip(why)  # no clang++ for it; fails under --devices-must-run


def turn(
    source: str = SOURCE,
    *,
    constants: dict[int, int] | None = None,
    order: int = 0,
    checked: bool = True,
    nbytes: int = 512,
    shift: int = 0,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Run two groups; return what came in and what came out."""
    taken, made = np.arange(129, dtype=np.float32), np.zeros(129, np.float32)
    addresses = taken.ctypes.data + shift, made.ctypes.data
    memory = [(addresses[0], 512, False), (addresses[1], nbytes, True)]
    library = compile_library(source, constants or {}, sanitize=checked)
    arguments = struct.pack("<QQII", *addresses, 64, 0)
    library.dispatch(
        "turn", arguments, (2, 1, 1), (64, 1, 1), order=order, memory=memory if checked else None
    )
    return taken, made


def planted(old: str, new: str) -> str:
    """Return the source with one fault."""
    assert SOURCE.count(old) == 1
    return SOURCE.replace(old, new)


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("add", [None, 100])
def test_a_right_kernel_computes(order: int, checked: bool, add: int | None) -> None:
    constants = {} if add is None else {0: add}
    taken, made = turn(order=order, checked=checked, constants=constants)
    wanted = taken[:128].reshape(2, 64)[:, ::-1].ravel() + 31 * 16 + (add or 7) + 0.5
    np.testing.assert_array_equal(made[:128], wanted)
    assert made[128] == 0


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("float sum =", "threadgroup float* p = a.in; float sum =", "cannot init"),
        ("float sum =", "thread float* p = &turned[0]; float sum =", "cannot init"),
        ("float sum =", "given->a.count = 3U; float sum =", "const-qual"),
        ("float4(float2(sum, 1.0), 2.0, 3.0)", "int4(1)", "cannot init"),
        ("float4(float2(sum, 1.0), 2.0, 3.0)", "float4(sum, 1.0)", "deleted"),
        ("float4(float2(sum, 1.0), 2.0, 3.0)", "float4(float2(sum, 1.0), 2.0)", "deleted"),
        ("float4(float2(sum, 1.0), 2.0, 3.0)", "float4(float3(sum))", "other elements"),
        ("uint lane [[thread_index_in_simdgroup]]", "uint lane [[quad_index]]", "quad_index"),
        ("uint lane [[thread_index_in_simdgroup]]", "uint lane", "without an attribute"),
    ],
)
def test_what_does_not_compile(old: str, new: str, said: str) -> None:
    with pytest.raises(ShaderError, match=said):
        compile_library(planted(old, new))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (BARRIER, "", "no barrier is between"),
        (BARRIER, BARRIER.replace("threadgroup_b", "simdgroup_b"), "no barrier is between"),
        (LAST, f"    if (t < 63U) {BARRIER}{LAST}", "a barrier that 1 of 64 threads do not reach"),
        (BARRIER, f"    if (t < 32U) {BARRIER} else {BARRIER}", "wait at different barriers"),
        (BARRIER, "    if (lane < 9U) simdgroup_barrier(mem_flags::mem_none);" + BARRIER, "lanes"),
        ("simd_sum(float(lane))", "(lane < 8U ? simd_sum(1.0) : simd_sum(2.0))", "different pl"),
        ("simd_sum(float(lane))", "simd_shuffle(1.0, ushort(32))", "lane 32 is asked"),
        ("turned[63U - t]", "turned[64U - t]", "index 64 of an array of 64"),
        ("if (t < a.count)", "if (t < 65U)", None),
        ("a.in[group.x * 64U + t]", "a.in[group.x * 65U + t]", "reads 4 bytes at .512 of 512"),
        ("a.out[group.x * 64U + t] =", "a.out[group.x * 65U + t] =", "writes 4 bytes at .512 of"),
        ("a.out[group.x * 64U + t] =", "a.in[group.x * 64U + t] =", "of read-only 512 bytes"),
        ("a.out[group.x * 64U + t] =", "a.out[t] =", "of another group wrote"),
        ("a.out[group.x * 64U + t] =", "a.out[group.x * 64U + t / 2U] =", "of its group wrote"),
        ("turned[63U - t]", "*(device float*)(8UL)", "at .* of (read-only )?512 bytes"),
        ("turned[63U - t]", "*(device float*)((ulong)a.in + t)", "aligned to 4 bytes"),
        ("float(ADD)", "float(ADD / (lane - lane))", "division by zero"),
        ("given->a;", "(given + 1)->a;", "of 512 bytes"),
    ],
)
def test_what_is_caught_as_it_runs(old: str, new: str, said: str | None) -> None:
    source = planted(old, new)
    if said is None:
        turn(source)
    else:
        with pytest.raises(ShaderError, match=said):
            turn(source)


def test_memory_that_is_not_there_ends_a_kernel_that_is_not_checked() -> None:
    source = planted("turned[63U - t]", "*(device float*)(8UL)")
    with pytest.raises(ShaderError, match="touches memory that is not there, address 0x8"):
        turn(source, checked=False)
    turn()  # and the shim goes on


def test_a_missing_barrier_shows_in_results_too() -> None:
    source = planted(BARRIER, "")
    wrong = [not np.array_equal(*turn(source, order=o, checked=False)) for o in (0, 1, 2)]
    assert any(wrong)


def test_what_is_read_before_it_is_written_is_nan() -> None:
    _, made = turn(planted("put(&turned, t,", "if (t != 5U) put(&turned, t,"))
    assert np.isnan(made[:128]).sum() == 2
    _, made = turn(planted("thread Pair pair = {1.0, 2.0};", "thread Pair pair;"))
    assert np.isnan(made[:128]).all()


def test_the_same_value_may_be_written_by_several() -> None:
    _, made = turn(planted(LAST, f"    a.out[group.x * 64U] = 3.0;\n{BARRIER}{LAST}"))
    assert made[0] == 63 + 31 * 16 + 7.5


def test_a_host_is_told() -> None:
    library = compile_library(SOURCE)
    with pytest.raises(ShaderError, match="turn: 1025 threads"):
        library.dispatch("turn", b"", (1, 1, 1), (1025, 1, 1))
    with pytest.raises(ShaderError, match="other: the library has turn"):
        library.dispatch("other", b"", (1, 1, 1), (1, 1, 1))
    more = f"threadgroup array<float, int(8192)> more; more[t] = 1.0;\n{BARRIER}"
    wide = compile_library(planted("float sum =", f"{more} float sum = more[t + 1U] +"))
    with pytest.raises(ShaderError, match="33024 bytes of threadgroup memory; there are 32768"):
        wide.dispatch("turn", b"", (1, 1, 1), (64, 1, 1))
    with pytest.raises(ShaderError, match="the host declared none"):
        compile_library(SOURCE, sanitize=True).dispatch(
            "turn", struct.pack("<QQII", 16, 16, 64, 0), (1, 1, 1), (64, 1, 1), memory=[]
        )
