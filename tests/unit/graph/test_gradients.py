"""Each op's gradient against differences of its meaning."""

from collections.abc import Callable

import numpy as np
import pytest
from assemble import weight

from edgequant.formats.matrix import CHUNK_WEIGHTS, Matrix
from edgequant.graph import Array, Step
from edgequant.graph.op import Differentiable
from edgequant.graph.ops.add import Add
from edgequant.graph.ops.attention import Attention
from edgequant.graph.ops.bias import Bias
from edgequant.graph.ops.embed import Embed
from edgequant.graph.ops.gate import Gate
from edgequant.graph.ops.linear import Linear
from edgequant.graph.ops.rms_norm import RmsNorm
from edgequant.graph.ops.rope import Rope
from edgequant.graph.ops.rows import Rows
from edgequant.graph.ops.store_kv import StoreKV

STEP = Step(np.array([2, 0, 2], np.int32), 0, 2, {})
CASES: list[tuple[Differentiable, list[tuple[int, ...]], list[tuple[int, ...]]]] = [
    (Add(), [(3, 4), (3, 4)], []),
    (Bias(4), [(3, 4)], [(4,)]),
    (Rows(), [(3, 4)], []),
    (Embed(4), [], [(3, 4)]),
    (Gate(), [(3, 4), (3, 4)], []),
    (Linear(4, 5), [(3, 4)], [(5, 4)]),
    (RmsNorm(4, 1e-3), [(3, 4)], [(4,)]),
    (RmsNorm(4, 1e-3), [(3, 8)], [(4,)]),
    (Rope(4, 10.0, interleaved=True), [(3, 8)], []),
    (Rope(4, 10.0, interleaved=False, stretch=2.0), [(3, 8)], []),
]


def draw(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def matrices(weights: list[Array]) -> list[Matrix]:
    return [Matrix(weight("w", array)) for array in weights]


def differences(x: Array, run: Callable[[], Array], by: Array) -> Array:
    """The gradient of sum(run() * by) by x, whose values are changed in place and back."""
    found = np.empty_like(x)
    for place in np.ndindex(x.shape):
        kept, ends = x[place], []
        for change in (0.02, -0.02):
            x[place] = kept + np.float32(change)
            ends.append((run().astype(np.float64) * by).sum())
        x[place] = kept
        found[place] = (ends[0] - ends[1]) / 0.04
    return found


@pytest.mark.parametrize(("op", "inputs", "weights"), CASES)
def test_it_is_that_of_the_meaning(
    op: Differentiable,
    inputs: list[tuple[int, ...]],
    weights: list[tuple[int, ...]],
    rng: np.random.Generator,
) -> None:
    xs, ws = [draw(rng, *shape) for shape in inputs], [draw(rng, *shape) for shape in weights]

    def run() -> Array:
        return op.reference(xs, matrices(ws), STEP)

    by = draw(rng, *run().shape)
    totals = [np.ones_like(w) for w in ws]  # what was there stays
    of_inputs = op.gradient(xs, matrices(ws), STEP, by, totals)
    for of_x, x in zip(of_inputs, xs, strict=True):
        assert of_x == pytest.approx(differences(x, run, by), rel=1e-2, abs=2e-3)
    for total, w in zip(totals, ws, strict=True):
        assert total - 1 == pytest.approx(differences(w, run, by), rel=1e-2, abs=2e-3)


@pytest.mark.parametrize("heads_kv", [1, 2, 4])
def test_attention_and_what_it_stored(heads_kv: int, rng: np.random.Generator) -> None:
    store, attention = StoreKV(0, heads_kv, 4), Attention(0, 4, heads_kv, 4)
    room = np.zeros((5, heads_kv, 4), np.float32)  # more than the tokens
    at = Step(STEP.tokens, 0, 2, {0: (room, room.copy())})
    q, k, v = draw(rng, 3, 16), draw(rng, 3, 4 * heads_kv), draw(rng, 3, 4 * heads_kv)

    def run() -> Array:
        return attention.reference([q, store.reference([k, v], [], at)], [], at)

    by = draw(rng, 3, 16)
    run()
    of_q, of_stored = attention.gradient([q, np.empty(0, np.float32)], [], at, by, [])
    of_k, of_v = store.gradient([k, v], [], at, of_stored, [])
    for of_x, x in ((of_q, q), (of_k, k), (of_v, v)):
        assert of_x == pytest.approx(differences(x, run, by), rel=1e-2, abs=2e-3)


def test_linear_goes_through_all_chunks(rng: np.random.Generator) -> None:
    rows = CHUNK_WEIGHTS // 64 + 3
    stored, x, by = draw(rng, rows, 64), draw(rng, 1, 64), draw(rng, 1, rows)
    total = np.zeros_like(stored)
    (of_x,) = Linear(64, rows).gradient([x], matrices([stored]), STEP, by, [total])
    assert of_x == pytest.approx((by.astype(np.float64) @ stored).astype(np.float32), abs=2e-3)
    assert np.array_equal(total, by.T @ x)


def test_gate_far_from_zero() -> None:
    a, b = np.array([[-200, 200]], np.float32), np.ones((1, 2), np.float32)
    of_a, of_b = Gate().gradient([a, b], [], STEP, np.ones((1, 2), np.float32), [])
    assert of_a == pytest.approx(np.array([[0, 1]]))
    assert of_b == pytest.approx(np.array([[0, 200]]))
