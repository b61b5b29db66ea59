"""Each op against its formula, written another way: loops and float64."""

import math

import numpy as np
import pytest
from assemble import weight
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgequant.formats import names
from edgequant.formats.matrix import CHUNK_WEIGHTS, Matrix
from edgequant.graph import ROWS, TOKENS, Array, Cache, Graph, Step
from edgequant.graph.op import Op
from edgequant.graph.ops.add import Add
from edgequant.graph.ops.attention import SCORES, Attention
from edgequant.graph.ops.bias import Bias
from edgequant.graph.ops.embed import Embed
from edgequant.graph.ops.gate import Gate
from edgequant.graph.ops.linear import Linear
from edgequant.graph.ops.rms_norm import RmsNorm
from edgequant.graph.ops.rope import Rope, frequencies
from edgequant.graph.ops.rows import Rows
from edgequant.graph.ops.store_kv import StoreKV

Doubles = NDArray[np.float64]


def draw(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def step(tokens: int, past: int = 0, rows: int = 1, cache: Cache | None = None) -> Step:
    return Step(np.arange(tokens, dtype=np.int32), past, rows, cache or {})


def run(op: Op, *inputs: Array, of: Array | None = None, at: Step | None = None) -> Array:
    matrices = [] if of is None else [Matrix(weight("w", of))]
    out = op.reference(inputs, matrices, at or step(len(inputs[0])))
    assert out.dtype == np.float32
    return out


def test_embed_takes_the_tokens_rows(rng: np.random.Generator) -> None:
    table = draw(rng, 9, 4)
    at = Step(np.array([8, 0, 8], np.int32), 0, 1, {})
    assert np.array_equal(run(Embed(4), of=table, at=at), table[[8, 0, 8]])


@pytest.mark.parametrize("fmt", names())
@pytest.mark.parametrize("kept", [False, True])
def test_linear_multiplies_with_the_decoded_weight(
    fmt: str, kept: bool, rng: np.random.Generator
) -> None:
    stored = Matrix(weight("w", draw(rng, 70, 256), fmt))
    x = draw(rng, 3, 256)
    out = Linear(256, 70).reference([x], [stored.kept() if kept else stored], step(3))
    decoded = stored.rows(0, 70).astype(np.float64)
    assert out == pytest.approx(x.astype(np.float64) @ decoded.T, abs=1e-4)


def test_linear_goes_through_all_chunks(rng: np.random.Generator) -> None:
    rows = CHUNK_WEIGHTS // 64 + 3
    stored, x = draw(rng, rows, 64), draw(rng, 1, 64)
    whole = (x.astype(np.float64) @ stored.T.astype(np.float64))[0]
    assert run(Linear(64, rows), x, of=stored)[0] == pytest.approx(whole, abs=1e-4)


def test_bias_and_add(rng: np.random.Generator) -> None:
    a, b = draw(rng, 3, 5), draw(rng, 3, 5)
    assert np.array_equal(run(Bias(5), a, of=b[0]), a + b[0])
    assert np.array_equal(run(Add(), a, b), a + b)


@given(a=st.floats(-(2.0**99), 2.0**99, width=32), b=st.floats(-1024, 1024, width=32))
def test_gate_is_silu_times(a: float, b: float) -> None:
    out = run(Gate(), np.array([[a]], np.float32), np.array([[b]], np.float32))[0, 0]
    sigmoid = 0.0 if a < -700 else 1 / (1 + math.exp(-a))
    assert out == pytest.approx(a * sigmoid * b, rel=1e-5, abs=1e-30)


def test_rows_keeps_the_last(rng: np.random.Generator) -> None:
    x = draw(rng, 5, 2)
    assert np.array_equal(run(Rows(), x, at=step(5, rows=2)), x[3:])
    assert np.array_equal(run(Rows(), x, at=step(5, rows=5)), x)


@pytest.mark.parametrize("runs", [1, 3])
def test_rms_norm(runs: int, rng: np.random.Generator) -> None:
    x, scale = draw(rng, 4, 8 * runs), draw(rng, 8)
    out = run(RmsNorm(8, 1e-5), x, of=scale)
    for token in range(4):
        for first in range(0, 8 * runs, 8):
            part: Doubles = x[token, first : first + 8].astype(np.float64)
            norm = math.sqrt(sum(value**2 for value in part) / 8 + 1e-5)
            wanted = part / norm * scale
            assert out[token, first : first + 8] == pytest.approx(wanted, rel=1e-5, abs=1e-6)


def test_rms_norm_of_zeros_is_zero() -> None:
    assert not run(RmsNorm(4, 1e-6), np.zeros((1, 4), np.float32), of=np.ones(4)).any()


@settings(deadline=None)
@given(past=st.integers(0, 100_000), interleaved=st.booleans(), stretch=st.sampled_from([1, 4]))
def test_rope_turns_pairs(past: int, interleaved: bool, stretch: int) -> None:
    rng = np.random.default_rng(past)
    dim, base = 8, 10000.0
    x, factors = draw(rng, 2, 2 * dim), rng.uniform(1, 8, dim // 2).astype(np.float32)
    op = Rope(dim, base, interleaved, float(stretch))
    out = run(op, x, of=factors, at=step(2, past))
    for token in range(2):
        for head in range(2):
            for pair in range(dim // 2):
                places = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + dim // 2)
                i, j = (head * dim + place for place in places)
                angle = (past + token) * base ** (-2 * pair / dim) / stretch / factors[pair]
                turned = complex(x[token, i], x[token, j]) * complex(
                    math.cos(angle), math.sin(angle)
                )
                loose = 2e-6 + 3e-7 * angle  # an angle is a float32
                assert abs(complex(out[token, i], out[token, j]) - turned) < 4 * loose


def test_frequencies_are_rounded_once() -> None:
    wanted = [10000.0 ** -float(np.float32(2 * i) / np.float32(96)) for i in range(48)]
    assert frequencies(10000.0, 96) == pytest.approx(wanted, rel=2e-7)
    assert np.array_equal(frequencies(5e5, 64, 4.0), frequencies(5e5, 64) / np.float32(4))


def made_cache(context: int, heads_kv: int, dim: int) -> Cache:
    return {0: tuple(np.zeros((context, heads_kv, dim), np.float32) for _ in "kv")}  # type: ignore[dict-item]


@pytest.mark.parametrize(("tokens", "past"), [(1, 0), (1, 6), (5, 0), (5, 4)])
@pytest.mark.parametrize("heads_kv", [1, 2, 4])
def test_attention_is_causal_softmax(
    tokens: int, past: int, heads_kv: int, rng: np.random.Generator
) -> None:
    heads, dim = 4, 8
    cache = made_cache(12, heads_kv, dim)
    store = StoreKV(0, heads_kv, dim)
    width = heads_kv * dim
    earlier = draw(rng, past, width), draw(rng, past, width)
    now = draw(rng, tokens, width), draw(rng, tokens, width)
    assert run(store, *earlier, at=step(past, 0, 1, cache)).shape == (0,)
    at = step(tokens, past, 1, cache)
    stored = run(store, *now, at=at)
    q = draw(rng, tokens, heads * dim)
    out = run(Attention(0, heads, heads_kv, dim), q, stored, at=at)
    k, v = (np.concatenate(pair).astype(np.float64) for pair in zip(earlier, now, strict=True))
    for token in range(tokens):
        for head in range(heads):
            mine = slice(head * dim, (head + 1) * dim)
            shared = head * heads_kv // heads
            theirs = slice(shared * dim, (shared + 1) * dim)
            seen = past + token + 1
            weights = np.exp(k[:seen, theirs] @ q[token, mine] / math.sqrt(dim))
            wanted = weights @ v[:seen, theirs] / weights.sum()
            assert out[token, mine] == pytest.approx(wanted, rel=1e-4, abs=1e-5)


def test_attention_in_runs_equals_attention_at_once(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = made_cache(40, 2, 4)
    at = step(30, 5, 1, cache)
    for part in cache[0]:
        part[:] = draw(rng, 40, 2, 4)
    q, op = draw(rng, 30, 16), Attention(0, 4, 2, 4)
    whole = run(op, q, np.empty(0, np.float32), at=at)
    assert SCORES > 4 * 30 * 35
    monkeypatch.setattr("edgequant.graph.ops.attention.SCORES", 500)
    assert run(op, q, np.empty(0, np.float32), at=at) == pytest.approx(whole, rel=1e-5, abs=1e-6)


def test_attention_takes_large_scores() -> None:
    cache = made_cache(4, 1, 2)
    cache[0][0][:2, 0] = [[500, 0], [-500, 0]]
    cache[0][1][:2, 0] = [[1, 2], [3, 4]]
    q = np.array([[500, 0]], np.float32)
    out = run(Attention(0, 1, 1, 2), q, np.empty(0, np.float32), at=step(1, 1, 1, cache))
    assert out[0] == pytest.approx([1, 2])


def test_shapes() -> None:
    graph = Graph()
    x = graph.add(Embed(8), weight="token_embd.weight")
    assert x.shape == (TOKENS, 8)
    q = graph.add(Rope(4, 1e4, interleaved=True), graph.add(Linear(8, 16), x, weight="q"))
    kv = graph.add(Linear(8, 8), x, weight="kv")
    stored = graph.add(StoreKV(0, 2, 4), kv, kv)
    assert stored.shape == (0,)
    assert graph.add(Attention(0, 4, 2, 4), q, stored).shape == (TOKENS, 16)
    assert graph.add(Gate(), q, q).shape == (TOKENS, 16)
    assert graph.add(Rows(), graph.add(RmsNorm(8, 1e-5), x)).shape == (ROWS, 8)
    assert graph.weights == ("token_embd.weight", "q", "kv")


@pytest.mark.parametrize(
    ("op", "shapes", "message"),
    [
        (Linear(8, 4), [(TOKENS, 7)], "linear: an input of 7 columns, a weight of 8"),
        (Bias(8), [(TOKENS, 7)], "bias: an input of 7 columns, a weight of 8"),
        (Add(), [(TOKENS, 7), (TOKENS, 8)], "add: the shapes .*7.* and .*8.* differ"),
        (Gate(), [(TOKENS, 7), (TOKENS, 8)], "gate: the shapes .*7.* and .*8.* differ"),
        (Rows(), [(ROWS, 8)], "rows: the first axis of .* is not tokens"),
        (RmsNorm(8, 1e-5), [(TOKENS, 12)], "rms_norm: 12 columns are not whole runs of 8"),
        (Rope(8, 1e4, interleaved=True), [(TOKENS, 12)], "rope: 12 columns are not whole heads"),
        (StoreKV(0, 2, 4), [(TOKENS, 8), (TOKENS, 4)], "store_kv: 8 and 4 columns, a cache of 8"),
        (Attention(0, 4, 2, 4), [(TOKENS, 8), (0,)], "attention: 8 columns, 4 heads of 4"),
    ],
)
def test_a_misfit_is_named(op: Op, shapes: list[tuple[object, ...]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        op.shape(*shapes)
