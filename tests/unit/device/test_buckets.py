"""Every step fits its bucket, and little of one is padding."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgequant.device.buckets import BATCHES, CONTEXT, batches, context_of, contexts, cut, smallest


@given(st.integers(1, 3000), st.integers(1, 5000))
def test_steps_feed_every_token_once(count: int, context: int) -> None:
    sizes = batches(context)
    lengths = list(cut(count, sizes))
    assert sum(lengths) == count
    for length in lengths:
        size = smallest(length, sizes)
        assert size in sizes
        assert 2 * length > size or size <= 64


@pytest.mark.parametrize(
    ("count", "lengths"),
    [(1, [1]), (2, [2]), (9, [9]), (100, [64, 36]), (300, [300]), (700, [512, 64, 64, 60])],
)
def test_padding_costs_less_than_more_steps(count: int, lengths: list[int]) -> None:
    assert list(cut(count, BATCHES)) == lengths


@pytest.mark.parametrize(
    ("context", "sizes"), [(1, (1,)), (8, (1, 8)), (9, (1, 8, 64)), (64, (1, 8, 64)), (65, BATCHES)]
)
def test_no_batch_size_is_larger_than_a_context_needs(context: int, sizes: tuple[int, ...]) -> None:
    assert batches(context) == sizes


def test_contexts_double() -> None:
    found = [context_of(n, 3000) for n in (1, CONTEXT, CONTEXT + 1, 2048, 2049, 3000)]
    assert found == [CONTEXT, CONTEXT, 2 * CONTEXT, 2048, 3000, 3000]
    assert context_of(5, 40) == 40
    assert contexts(3000) == (CONTEXT, 2 * CONTEXT, 2048, 3000)
    assert contexts(CONTEXT) == (CONTEXT,)
    assert contexts(40) == (40,)
