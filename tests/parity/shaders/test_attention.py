"""Attention against NumPy, over a cache that is rounded for both alike."""

import numpy as np
import pytest
from run_op import loaded, nmse, reference, run_op, stored

from edgequant.blocks import Floats
from edgequant.device.protocol import Gpu
from edgequant.graph.ops.attention import Attention

pytestmark = pytest.mark.device

# Scores are sums of head_dim float32 products, in another order; their error, some 1e-6, is
# relative in the weights: 1e-12 squared. Tiles hold keys and values as halves: exact from F16; from
# Q8_0 each is rounded by 2^-12 or so: 6e-8 squared, of scores as large as 3 and of values.
BOUND = {"F16": 1e-11, "Q8_0": 2e-6}


def rounded_cache(
    rng: np.random.Generator, tokens: int, heads_kv: int, head_dim: int, cache_type: str
) -> tuple[Floats, Floats]:
    """Return keys and values, (tokens, heads_kv, head_dim), that the cache holds exactly."""
    made = []
    for _ in range(2):
        drawn = rng.standard_normal((tokens, heads_kv, head_dim), np.float32)
        raw = np.frombuffer(stored(drawn, tokens, cache_type), np.uint8)
        made.append(loaded(raw, (heads_kv, head_dim), cache_type))
    return made[0], made[1]


def check(
    gpu: Gpu,
    rng: np.random.Generator,
    shape: tuple[int, int, int],
    past: int,
    tokens: int,
    cache_type: str = "F16",
    bucket: int | None = None,
    context: int | None = None,
    peak: float = 1,
) -> tuple[str, ...]:
    """Compare; return the kernels that ran."""
    heads, heads_kv, head_dim = shape
    op = Attention(1, heads, heads_kv, head_dim)
    cache = rounded_cache(rng, past + tokens, heads_kv, head_dim, cache_type)
    q = peak * rng.standard_normal((tokens, heads * head_dim), np.float32)
    inputs = [q, np.empty((tokens, 0), np.float32)]
    ran = run_op(
        gpu, op, inputs, past=past, bucket=bucket, cache=cache, cache_type=cache_type,
        context=context, capacity=max(context or 0, past + (bucket or tokens)) + 5,
    )  # fmt: skip
    wanted = reference(op, inputs, past=past, cache=cache)
    assert nmse(ran.out, wanted.out) < BOUND[cache_type]
    return ran.kernels


@pytest.mark.parametrize(
    ("heads", "heads_kv", "head_dim", "cache_type"),
    [
        (2, 2, 16, "F16"),
        (4, 1, 32, "Q8_0"),
        (14, 2, 48, "F16"),
        (8, 1, 64, "F16"),
        (4, 1, 80, "F16"),
        (2, 1, 96, "Q8_0"),
        (4, 1, 128, "F16"),
        (6, 2, 128, "Q8_0"),
        (2, 1, 256, "F16"),
    ],
)
def test_shapes(
    gpu: Gpu, heads: int, heads_kv: int, head_dim: int, cache_type: str, rng: np.random.Generator
) -> None:
    for past, tokens in ((31, 1), (5, 9)):
        check(gpu, rng, (heads, heads_kv, head_dim), past, tokens, cache_type)


@pytest.mark.parametrize("past", [0, 1, 31, 257])
def test_tokens(gpu: Gpu, past: int, rng: np.random.Generator) -> None:
    for tokens in (*range(1, 10), 33, 64):
        check(gpu, rng, (4, 2, 32), past, tokens)


@pytest.mark.parametrize("past", [0, 1, 128, 600, 1023])
@pytest.mark.parametrize("tokens", [1, 5])
@pytest.mark.parametrize("cache_type", ["F16", "Q8_0"])
def test_a_split_context(
    gpu: Gpu, past: int, tokens: int, cache_type: str, rng: np.random.Generator
) -> None:
    kernels = check(gpu, rng, (4, 1, 32), past, tokens, cache_type, context=2048)
    assert kernels == (f"attention_{cache_type.lower()}", "attention_merge")


@pytest.mark.parametrize(("tokens", "bucket"), [(1, 8), (7, 8), (9, 64), (33, 64), (63, 64)])
def test_padding(gpu: Gpu, tokens: int, bucket: int, rng: np.random.Generator) -> None:
    check(gpu, rng, (6, 2, 32), 40, tokens, bucket=bucket)


@pytest.mark.parametrize("tokens", [1, 9])
def test_large_scores(gpu: Gpu, tokens: int, rng: np.random.Generator) -> None:
    check(gpu, rng, (2, 1, 64), 100, tokens, peak=100)
