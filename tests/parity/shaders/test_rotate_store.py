"""Norm, rope and the KV cache against NumPy."""

import numpy as np
import pytest
from run_op import Ran, encoded, nmse, reference, run_op

from edgequant.blocks import Floats
from edgequant.device.protocol import Gpu
from edgequant.graph.ops.rope import Rope
from edgequant.graph.ops.rotate_store import RotateStore
from edgequant.graph.ops.store_kv import StoreKV

pytestmark = pytest.mark.device

# An angle is the same float32 here and there; its cosine and sine are within 6e-7: 4e-13 squared.
BOUND = 1e-12
HALF = 2.0**-11  # relative error of a half, at most
HEAD_DIMS = (8, 16, 32, 64, 80, 96, 128, 256)


def no_cache(heads_kv: int, head_dim: int, past: int) -> tuple[Floats, Floats]:
    kept = np.zeros((past, heads_kv, head_dim), np.float32)
    return kept, kept


def check_cache(ran: Ran, ref: Ran, past: int, tokens: int, cache_type: str) -> None:
    """The step's keys and values are there, rounded; what comes after is as it was."""
    for got, wanted in ((ran.keys, ref.keys), (ran.values, ref.values)):
        assert got is not None
        assert wanted is not None
        new = wanted[past : past + tokens]
        error = np.abs(got[past : past + tokens] - new)
        if cache_type == "F32":
            assert nmse(got[past : past + tokens], new) < BOUND
        elif cache_type == "F16":
            assert (error <= HALF * np.abs(new) + 1e-6).all()
        else:  # a step is 1/127 of the largest of 32, itself a half: half a step, and its error
            largest = np.abs(new.reshape(tokens, -1, 32)).max(axis=-1, keepdims=True)
            step = np.broadcast_to(largest / 127, (*largest.shape[:-1], 32)).reshape(new.shape)
            assert (error <= (0.5 + 127 * HALF) * step + 1e-6).all()
            assert nmse(got[past : past + tokens], new) < 1e-4  # 1/12 of a step squared
        assert np.isnan(got[past + tokens :]).all()


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize("interleaved", [True, False])
def test_rope_turns(gpu: Gpu, head_dim: int, interleaved: bool, rng: np.random.Generator) -> None:
    op = Rope(head_dim, 10000.0, interleaved, stretch=2.0)
    x = rng.standard_normal((9, 3 * head_dim), np.float32)
    factors = [encoded(rng.uniform(1, 8, head_dim // 2).astype(np.float32))]
    for weights in ([], factors):
        for past, tokens in ((0, 9), (31, 1), (131_070, 2)):
            ran = run_op(gpu, op, [x[:tokens]], weights, past=past, bucket=9, capacity=9)
            wanted = reference(op, [x[:tokens]], weights, past=past)
            assert nmse(ran.out, wanted.out) < BOUND


@pytest.mark.parametrize("past", [0, 1, 8191, 131_071, 1_000_000])
def test_large_angles(gpu: Gpu, past: int) -> None:
    op = Rope(128, 500_000.0, interleaved=True)
    x = np.tile(np.array([1, 0], np.float32), 64)[None]
    ran = run_op(gpu, op, [x], past=past, capacity=8)
    assert np.abs(ran.out - reference(op, [x], past=past).out).max() < 6e-7


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize("cache_type", ["F16", "Q8_0", "F32"])
def test_store(gpu: Gpu, head_dim: int, cache_type: str, rng: np.random.Generator) -> None:
    if cache_type == "Q8_0":
        head_dim = -(-head_dim // 32) * 32  # what is refused is tested apart
    elif cache_type == "F32":
        head_dim = min(head_dim, 192)
    op = StoreKV(0, 3, head_dim)
    for past, tokens, bucket in ((0, 1, 1), (1, 5, 8), (31, 9, 9)):
        inputs = [rng.standard_normal((tokens, 3 * head_dim), np.float32) for _ in range(2)]
        cache = no_cache(3, head_dim, past)
        ran = run_op(
            gpu, op, inputs, past=past, bucket=bucket, cache=cache, cache_type=cache_type,
            capacity=past + bucket + 3,
        )  # fmt: skip
        wanted = reference(op, inputs, past=past, cache=cache)
        check_cache(ran, wanted, past, tokens, cache_type)


def test_store_of_what_a_half_cannot_hold(gpu: Gpu) -> None:
    inputs = [np.full((1, 8), value, np.float32) for value in (1e6, -1e6)]
    ran = run_op(gpu, StoreKV(0, 1, 8), inputs, cache=no_cache(1, 8, 0))
    assert ran.keys is not None
    assert ran.values is not None
    assert (ran.keys == 65504).all()
    assert (ran.values == -65504).all()


def test_store_of_zeros_and_of_small_values_in_q8_0(gpu: Gpu) -> None:
    inputs = [np.full((1, 32), value, np.float32) for value in (0, 1e-9)]
    ran = run_op(gpu, StoreKV(0, 1, 32), inputs, cache=no_cache(1, 32, 0), cache_type="Q8_0")
    assert ran.keys is not None
    assert ran.values is not None
    assert not ran.keys.any()
    assert (np.abs(ran.values) < 1e-6).all()


@pytest.mark.parametrize("cache_type", ["F16", "Q8_0", "F32"])
@pytest.mark.parametrize(
    ("heads", "heads_kv", "head_dim"),
    [(4, 4, 64), (4, 1, 96), (14, 2, 64)],  # of one subgroup, and of two
)
@pytest.mark.parametrize("norms", [None, 1e-6])
@pytest.mark.parametrize("frequencies", [False, True])
def test_all_at_once(
    gpu: Gpu,
    cache_type: str,
    heads: int,
    heads_kv: int,
    head_dim: int,
    norms: float | None,
    frequencies: bool,
    rng: np.random.Generator,
) -> None:
    op = RotateStore(
        2, heads, heads_kv, head_dim, 1e6, interleaved=frequencies, norms=norms,
        frequencies=frequencies,
    )  # fmt: skip
    weights = []
    if norms is not None:
        weights += [encoded(rng.standard_normal(head_dim, np.float32)) for _ in range(2)]
    if frequencies:
        weights.append(encoded(rng.uniform(1, 8, head_dim // 2).astype(np.float32)))
    for past, tokens, bucket in ((0, 1, 1), (257, 3, 8), (1, 33, 33), (5, 60, 64)):
        inputs = [
            2 * rng.standard_normal((tokens, n * head_dim), np.float32)
            for n in (heads, heads_kv, heads_kv)
        ]
        cache = no_cache(heads_kv, head_dim, past)
        ran = run_op(
            gpu, op, inputs, weights, past=past, bucket=bucket, cache=cache, cache_type=cache_type,
            capacity=past + bucket + 3,
        )  # fmt: skip
        wanted = reference(op, inputs, weights, past=past, cache=cache)
        assert nmse(ran.out, wanted.out) < BOUND
        check_cache(ran, wanted, past, tokens, cache_type)
