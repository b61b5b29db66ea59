"""Attention against NumPy, over a cache that is rounded for both alike."""

import numpy as np
import pytest
from kv_cache import rounded_cache
from run_op import nmse, reference, run_op, without

from edgequant.device.protocol import Gpu
from edgequant.graph.kernels.attention import SHARE
from edgequant.graph.kernels.matmul import halves
from edgequant.graph.ops.attention import Attention

pytestmark = pytest.mark.device

# Scores are sums of head_dim float32 products, in another order; their error, some 1e-6, is
# relative in the weights: 1e-12 squared.
FLOAT = 1e-11
# Tiles hold keys and values as halves: exact from F16, from Q8_0 rounded. Matrices take queries and
# weights as halves too. A rounding is 1.4e-4 in the mean, 2e-8 squared; a score of queries and keys
# of deviation 1 is off by as much, and so are its weight and its value: 6e-8. Scores of larger
# queries are off in proportion.
HALF = 2e-7
WHOLE = 64  # rows that every kernel takes in whole workgroups; those of padding alone do nothing
# Of each kernel that takes many tokens: a width of heads, and the cache.
WIDTHS = [
    *((width, "F16") for width in (64, 72, 80, 96, 128, 136)),
    *((width, "Q8_0") for width in (64, 96, 128, 160)),
    (64, "F32"),
]


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
    tower: int | None = None,
) -> tuple[str, ...]:
    """Compare; return the kernels that ran.

    With `tower`, the score of that key is above all others by more than float32 has powers of 2.
    """
    heads, heads_kv, head_dim = shape
    op = Attention(1, heads, heads_kv, head_dim)
    cache = rounded_cache(rng, past + tokens, heads_kv, head_dim, cache_type)
    q = peak * rng.standard_normal((tokens, heads * head_dim), np.float32)
    if tower is not None:
        q, cache[0][tower], peak = q + 8, 8, 8
    inputs = [q, np.empty((tokens, 0), np.float32)]
    wanted = reference(op, inputs, past=past, cache=cache)
    kernels: list[str] = []
    spare = 5 if past % 4 == 1 else 0  # with none, nothing beyond the last key may be read
    for limits in dict.fromkeys((gpu.limits, without(gpu.limits, cooperative_matrix=None))):
        ran = run_op(
            gpu, op, inputs, past=past, bucket=bucket, cache=cache, cache_type=cache_type,
            context=context, capacity=max(context or 0, past + (bucket or tokens)) + spare,
            limits=limits,
        )  # fmt: skip
        rounds = {
            "attention_matrix": peak**2,
            "attention_tiled": peak**2 if cache_type == "Q8_0" else 0,
            "attention": 0,
        }[ran.kernels[0].partition(f"_{cache_type.lower()}")[0]]
        assert nmse(ran.out, wanted.out) < FLOAT + rounds * HALF
        if tokens * heads // heads_kv % WHOLE == 0:
            assert np.isnan(ran.padding).all()
        kernels += ran.kernels
    return tuple(kernels)


@pytest.mark.parametrize(
    ("heads", "heads_kv", "head_dim", "cache_type"),
    [
        (2, 2, 16, "F16"),
        (4, 1, 32, "Q8_0"),
        (14, 2, 48, "F16"),
        (8, 1, 64, "F16"),
        (6, 2, 64, "Q8_0"),
        (4, 1, 80, "F16"),
        (4, 1, 64, "F32"),
        (2, 2, 192, "F32"),
        (2, 1, 96, "Q8_0"),
        (4, 1, 128, "F16"),
        (6, 2, 128, "Q8_0"),
        (2, 1, 256, "F16"),
        (2, 1, 256, "Q8_0"),
    ],
)
def test_shapes(
    gpu: Gpu, heads: int, heads_kv: int, head_dim: int, cache_type: str, rng: np.random.Generator
) -> None:
    for past, tokens in ((31, 1), (70, 33)):  # tiles that are full, of rows and of keys
        check(gpu, rng, (heads, heads_kv, head_dim), past, tokens, cache_type)


@pytest.mark.parametrize("past", [0, 1, 31, 257])
def test_tokens(gpu: Gpu, past: int, rng: np.random.Generator) -> None:
    for tokens in (*range(1, 10), 33, 64):
        check(gpu, rng, (4, 2, 64), past, tokens)


@pytest.mark.parametrize("tokens", [3, 5, 8])
@pytest.mark.parametrize("cache_type", ["F16", "Q8_0", "F32"])
def test_several_rows_of_a_workgroup(
    gpu: Gpu, tokens: int, cache_type: str, rng: np.random.Generator
) -> None:
    """Of more rows than ALONE, a workgroup takes two, three and four."""
    check(gpu, rng, (32, 4, 32), 33, tokens, cache_type)


@pytest.mark.parametrize("past", [0, 1, 128, 600, 2040])
@pytest.mark.parametrize("tokens", [1, 5])
@pytest.mark.parametrize("cache_type", ["F16", "Q8_0"])
def test_a_split_context(
    gpu: Gpu, past: int, tokens: int, cache_type: str, rng: np.random.Generator
) -> None:
    kernels = check(gpu, rng, (4, 1, 32), past, tokens, cache_type, context=2048)
    assert set(kernels) == {f"attention_{cache_type.lower()}", "attention_merge"}


def test_splits_that_slices_of_the_merge_do_not_divide(gpu: Gpu, rng: np.random.Generator) -> None:
    for head_dim, splits in ((64, 17), (96, 12)):  # slices of 16, and of 10 that leave threads over
        context = splits * SHARE
        for tower in (None, context - 3):
            kernels = check(
                gpu, rng, (1, 1, head_dim), context - 3, 1, context=context, tower=tower
            )
            assert set(kernels) == {"attention_f16", "attention_merge"}


@pytest.mark.parametrize(("tokens", "bucket"), [(1, 8), (7, 8), (9, 64), (33, 64), (63, 64)])
def test_padding(gpu: Gpu, tokens: int, bucket: int, rng: np.random.Generator) -> None:
    check(gpu, rng, (6, 2, 64), 40, tokens, bucket=bucket)


@pytest.mark.parametrize(("head_dim", "cache_type"), WIDTHS)
@pytest.mark.parametrize(("past", "tokens", "bucket"), [(1, 32, 64), (31, 9, 9), (7, 9, 9)])
def test_edges(
    gpu: Gpu, past: int, tokens: int, bucket: int, head_dim: int, cache_type: str,
    rng: np.random.Generator,
) -> None:  # fmt: skip
    """Rows fill tiles, and padding follows, or do not; a key is alone, or the cache is full."""
    check(gpu, rng, (2, 1, head_dim), past, tokens, cache_type, bucket)


@pytest.mark.parametrize(("head_dim", "cache_type"), WIDTHS)
@pytest.mark.parametrize("tower", [63, 70])
def test_a_towering_score(
    gpu: Gpu, head_dim: int, cache_type: str, tower: int, rng: np.random.Generator
) -> None:
    """At the end of all tiles, or where a token sees only itself of those that follow."""
    for past, tokens in ((70, 1), (62, 9)):
        check(gpu, rng, (2, 1, head_dim), past, tokens, cache_type, tower=tower)


@pytest.mark.parametrize("tokens", [1, 9])
@pytest.mark.parametrize(
    ("head_dim", "cache_type"),
    [
        (64, "F16"),
        (80, "F16"),
        (96, "F16"),
        (128, "F16"),
        (64, "Q8_0"),
        (96, "Q8_0"),
        (128, "Q8_0"),
    ],
)
def test_large_scores(
    gpu: Gpu, head_dim: int, cache_type: str, tokens: int, rng: np.random.Generator
) -> None:
    check(gpu, rng, (2, 1, head_dim), 100, tokens, cache_type, peak=100)


def test_halves_beside_the_result(gpu: Gpu, rng: np.random.Generator) -> None:
    tokens, op = 9, Attention(1, 4, 2, 64)
    cache = rounded_cache(rng, tokens, 2, 64, "F16")
    inputs = [rng.standard_normal((tokens, 256), np.float32), np.empty((tokens, 0), np.float32)]
    for limits in dict.fromkeys((gpu.limits, without(gpu.limits, cooperative_matrix=None))):
        ran = run_op(gpu, op, inputs, cache=cache, limits=limits, wants=(halves(256, tokens, -1),))
        fours = ran.derived["half"].view(np.float16).reshape(tokens, -1, 4)
        made = fours[..., [0, 2, 1, 3]].reshape(tokens, -1)  # first and third share a word
        np.testing.assert_allclose(made, ran.out, 2**-10, 1e-7)
