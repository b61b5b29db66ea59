"""Each filter on logits small enough to reckon by hand; the draw against its probabilities."""

import numpy as np
import pytest

from edgequant.device.protocol import Sampling
from edgequant.runtime.sampler import (
    Sampler,
    candidates,
    count_min_p,
    count_top_p,
    penalize,
    rank,
    softmax,
)

ALL = Sampling(temperature=1, top_k=0, top_p=1, min_p=0)


def logits_of(*chances: float) -> np.ndarray:
    return np.log(np.array(chances, dtype=np.float32))


def test_penalty_moves_both_signs_down_and_counts_a_token_once() -> None:
    logits = np.array([2.0, -2.0, 0.0, 1.0], dtype=np.float32)
    assert penalize(logits, [0, 1, 1, 2], 2.0).tolist() == [1.0, -4.0, 0.0, 1.0]
    assert logits.tolist() == [2.0, -2.0, 0.0, 1.0]  # the argument is left alone
    assert penalize(logits, [0], 1.0) is logits
    assert penalize(logits, [], 2.0) is logits


@pytest.mark.parametrize("k", [0, 1, 3, 7, 40, 1000, 5000])
def test_rank_is_a_stable_sort(rng: np.random.Generator, k: int) -> None:
    logits = rng.integers(0, 40, 1000).astype(np.float32)  # many are equal
    expected = sorted(range(1000), key=lambda i: (-logits[i], i))
    assert rank(logits, k).tolist() == expected[: k or None]


def test_softmax_sums_to_one_far_from_zero() -> None:
    found = softmax(np.array([1e4, 1e4, -1e4], dtype=np.float32))
    assert found.tolist() == [0.5, 0.5, 0.0]


@pytest.mark.parametrize(
    ("p", "count"), [(0.0, 1), (0.5, 1), (0.51, 2), (0.8, 2), (0.9, 3), (1.0, 4), (2.0, 4)]
)
def test_top_p_keeps_the_token_that_reaches_p(p: float, count: int) -> None:
    assert count_top_p(logits_of(0.5, 0.3125, 0.125, 0.0625), p) == count


@pytest.mark.parametrize(
    ("p", "count"), [(0.0, 4), (0.1, 4), (0.2, 3), (0.5, 2), (0.51, 1), (1.0, 1)]
)
def test_min_p_is_relative_to_the_best(p: float, count: int) -> None:
    assert count_min_p(logits_of(0.5, 0.25, 0.125, 0.0625), p) == count


def test_filters_follow_one_another_before_the_temperature() -> None:
    logits = logits_of(0.1, 0.4, 0.3, 0.2)
    # Of the best three, 0.4 and 0.3 have 0.777 of the probability; a hot draw changes no choice.
    sampling = Sampling(temperature=100, top_k=3, top_p=0.75, min_p=0)
    ids, chances = candidates(logits, sampling, [])
    assert ids.tolist() == [1, 2]
    assert chances == pytest.approx([0.5, 0.5], abs=2e-3)
    ids, chances = candidates(logits, Sampling(0.5, 0, 1, 0), [])
    assert ids.tolist() == [1, 2, 3, 0]
    assert chances == pytest.approx(np.array([16, 9, 4, 1]) / 30)


def test_greedy_takes_the_best_after_the_penalty() -> None:
    logits = np.array([1.0, 3.0, 2.5], dtype=np.float32)
    greedy = Sampling(temperature=0)
    assert candidates(logits, greedy, [])[0].tolist() == [1]
    penalized = Sampling(temperature=0, repeat_penalty=1.5, repeat_last=2)
    assert candidates(logits, penalized, [1, 0, 0])[0].tolist() == [1]  # too long ago
    assert candidates(logits, penalized, [0, 1, 0])[0].tolist() == [2]
    off = Sampling(temperature=0, repeat_penalty=1.5, repeat_last=0)
    assert candidates(logits, off, [1])[0].tolist() == [1]


def test_draws_follow_the_probabilities() -> None:
    chances = np.array([0.05, 0.5, 0.15, 0.3])
    sampler = Sampler(Sampling(1, 0, 1, 0, seed=3))
    counts = np.bincount([sampler.pick(logits_of(*chances), []) for _ in range(4000)])
    # Four standard deviations of a binomial count.
    assert np.all(np.abs(counts - 4000 * chances) < 4 * np.sqrt(4000 * chances * (1 - chances)))


def test_a_seed_gives_the_same_tokens_and_none_draws_one(rng: np.random.Generator) -> None:
    rows = rng.standard_normal((20, 50)).astype(np.float32)

    def draw(seed: int | None) -> tuple[int, list[int]]:
        sampler = Sampler(Sampling(seed=seed))
        return sampler.seed, [sampler.pick(row, []) for row in rows]

    assert draw(11) == draw(11)
    seed, tokens = draw(None)
    assert draw(seed) == (seed, tokens)
    assert draw(None)[0] != draw(None)[0]
