"""Norm, rope, cache and attention in one go, against the composition in NumPy."""

import numpy as np
import pytest
from int8_activations import read_int8
from kv_cache import rounded_cache
from run_op import Ran, encoded, nmse, reference, run_op

from edgequant.device.protocol import Gpu
from edgequant.graph.kernels.matvec import quantized
from edgequant.graph.launch import Operand
from edgequant.graph.ops.rotate_attend import RotateAttend
from edgequant.graph.ops.rotate_store import RotateStore

pytestmark = pytest.mark.device

FLOAT = 1e-11  # as in test_attention.py and test_rotate_store.py
# In a step of several tokens, the step's keys and values are read from the cache: rounded, as those
# of the reference are not. A half is off by 1.4e-4 in the mean, Q8_0 by 4e-3: squared, doubled.
ROUNDED = {"F16": 1e-7, "Q8_0": 1e-4, "F32": 0}


def check(
    gpu: Gpu,
    rng: np.random.Generator,
    op: RotateStore,
    past: int,
    tokens: int,
    cache_type: str = "F16",
    context: int | None = None,
    wants: tuple[Operand, ...] = (),
) -> Ran:
    """Compare results and caches."""
    sizes = (op.heads_kv, op.head_dim)
    cache = rounded_cache(rng, past, *sizes, cache_type)
    inputs = [
        rng.standard_normal((tokens, heads * op.head_dim), np.float32)
        for heads in (op.heads, op.heads_kv, op.heads_kv)
    ]
    weights = []
    if op.norms is not None:
        weights += [encoded(rng.uniform(0.5, 2, op.head_dim).astype(np.float32)) for _ in "qk"]
    if op.frequencies:
        weights.append(encoded(rng.uniform(1, 8, op.head_dim // 2).astype(np.float32)))
    ran = run_op(
        gpu, RotateAttend(op), inputs, weights, past=past, cache=cache, cache_type=cache_type,
        context=context, capacity=max(context or 0, past + tokens) + past % 2, wants=wants,
    )  # fmt: skip
    wanted = reference(RotateAttend(op), inputs, weights, past=past, cache=cache)
    several = ROUNDED[cache_type] if tokens > 1 else 0
    assert nmse(ran.out, wanted.out) < FLOAT + several
    for got, right in ((ran.keys, wanted.keys), (ran.values, wanted.values)):
        assert got is not None
        assert right is not None
        assert nmse(got[: past + tokens], right) < FLOAT + ROUNDED[cache_type]
        assert np.isnan(got[past + tokens :]).all()
    return ran


@pytest.mark.parametrize(
    ("heads", "heads_kv", "head_dim", "cache_type"),
    [
        (4, 2, 16, "F16"),
        (4, 4, 40, "F16"),
        (6, 2, 64, "F32"),
        (3, 3, 40, "F32"),
        (4, 1, 96, "F32"),
        (14, 2, 64, "Q8_0"),
        (4, 1, 96, "Q8_0"),
        (4, 1, 128, "F16"),
        (2, 2, 32, "Q8_0"),
    ],
)
@pytest.mark.parametrize("interleaved", [True, False])
def test_one_token(
    gpu: Gpu,
    heads: int,
    heads_kv: int,
    head_dim: int,
    cache_type: str,
    interleaved: bool,
    rng: np.random.Generator,
) -> None:
    op = RotateStore(
        1, heads, heads_kv, head_dim, 1e4, interleaved,
        norms=None if interleaved else 1e-6, frequencies=interleaved,
    )  # fmt: skip
    for past in (0, 1, 31, 257):
        check(gpu, rng, op, past, 1, cache_type)


def test_angles(gpu: Gpu) -> None:
    """As exact as `RotateStore`'s."""
    op = RotateAttend(RotateStore(1, 1, 1, 128, 1e4, interleaved=True))
    x = np.tile(np.array([1, 0], np.float32), 64)[None]
    none = np.zeros((257, 1, 128), np.float32)
    ran = run_op(gpu, op, [x, x, x], past=257, cache=(none, none), cache_type="F32")
    wanted = reference(op, [x, x, x], past=257, cache=(none, none))
    assert ran.keys is not None
    assert wanted.keys is not None
    assert np.abs(ran.keys - wanted.keys).max() < 6e-7


@pytest.mark.parametrize("past", [0, 1, 63, 64, 127, 600, 2046])
@pytest.mark.parametrize("cache_type", ["F16", "Q8_0", "F32"])
def test_one_token_of_a_split_context(
    gpu: Gpu, past: int, cache_type: str, rng: np.random.Generator
) -> None:
    op = RotateStore(1, 8, 1, 32, 1e4, interleaved=False)
    check(gpu, rng, op, past, 1, cache_type, context=2048)


@pytest.mark.parametrize("cache_type", ["F16", "Q8_0", "F32"])
def test_several_tokens(gpu: Gpu, cache_type: str, rng: np.random.Generator) -> None:
    op = RotateStore(1, 4, 2, 64, 1e4, interleaved=True)
    for past, tokens in ((0, 3), (33, 8), (20, 9)):
        check(gpu, rng, op, past, tokens, cache_type)


@pytest.mark.parametrize("cache_type", ["F16", "Q8_0", "F32"])
def test_four_rows_of_a_workgroup(gpu: Gpu, cache_type: str, rng: np.random.Generator) -> None:
    """As many as it takes at most, of more than three times ALONE heads; the last has two."""
    op = RotateStore(1, 198, 1, 32, 1e4, interleaved=False, norms=1e-6)
    check(gpu, rng, op, 77, 1, cache_type)


@pytest.mark.parametrize("context", [300, 1024])
@pytest.mark.parametrize("cache_type", ["F16", "Q8_0", "F32"])
def test_int8_beside_the_result(
    gpu: Gpu, context: int, cache_type: str, rng: np.random.Generator
) -> None:
    columns = 4 * 64
    wanted = quantized(1, columns, -1, writes=True)
    op = RotateStore(1, 4, 2, 64, 1e4, interleaved=True)
    ran = check(gpu, rng, op, 200, 1, cache_type, context=context, wants=(wanted,))
    read = read_int8(ran.derived["q8"], 1, columns)
    # Half a step at most, of 1/127 of the largest of 32.
    error = np.abs(read.values - ran.out.reshape(-1, 16))
    assert (error <= 0.501 * read.scales[:, None]).all()
    most = np.abs(ran.out.reshape(-1, 32)).max(axis=1).repeat(2)
    assert most == pytest.approx(127 * read.scales)
