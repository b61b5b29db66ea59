"""Allocation: never over the budget, and the best there is."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgequant.model.allocation import Option, allocate, smallest

OPTION = st.builds(
    Option,
    st.sampled_from(["A", "B", "C"]),
    st.integers(0, 50),
    st.floats(0, 100, allow_nan=False, allow_subnormal=False),
)
TENSORS = st.dictionaries(
    st.text(max_size=3), st.lists(OPTION, min_size=1, max_size=4), min_size=1, max_size=4
)


def nbytes(chosen: dict[str, Option]) -> int:
    return sum(o.nbytes for o in chosen.values())


def cost(chosen: dict[str, Option]) -> float:
    return sum(o.cost for o in chosen.values())


@given(TENSORS, st.integers(0, 100))
def test_the_best_within_the_budget(options: dict[str, list[Option]], more: int) -> None:
    budget = smallest(options) + more
    chosen = allocate(options, budget)
    assert chosen.keys() == options.keys()
    assert all(chosen[name] in each for name, each in options.items())
    assert nbytes(chosen) <= budget
    every = (dict(zip(options, pick, strict=True)) for pick in product(*options.values()))
    best = min(cost(each) for each in every if nbytes(each) <= budget)
    assert cost(chosen) == pytest.approx(best)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.37, 0.8, 1.0])
def test_a_coarse_grid_loses_little(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    options = {
        str(i): [Option(str(bits), int(size * bits), 4.0**-bits * weight) for bits in range(2, 9)]
        for i, (size, weight) in enumerate(10 ** rng.uniform(3, 6, (60, 2)))
    }
    budget = int(smallest(options) * (1 + 3 * share))
    fine = allocate(options, budget)
    monkeypatch.setattr("edgequant.model.allocation.STEPS", 1000)
    coarse = allocate(options, budget)
    assert nbytes(coarse) <= budget
    assert cost(fine) <= cost(coarse) <= 1.08 * cost(fine) + 1e-9


def test_a_budget_for_everything_buys_the_best() -> None:
    options = {"a": [Option("s", 1, 5), Option("l", 9, 1)], "b": [Option("s", 1, 3)]}
    assert allocate(options, 100) == {"a": options["a"][1], "b": options["b"][0]}
    assert allocate(options, 2) == {"a": options["a"][0], "b": options["b"][0]}


def test_bytes_go_where_they_save_most() -> None:
    cheap = [Option("s", 10, 8), Option("m", 20, 4), Option("l", 30, 3)]
    dear = [Option("s", 10, 80), Option("m", 20, 40), Option("l", 30, 30)]
    chosen = allocate({"cheap": cheap, "dear": dear}, 50)
    assert (chosen["cheap"].format, chosen["dear"].format) == ("m", "l")


def test_options_above_the_convex_hull_are_options() -> None:
    options = {"a": [Option("s", 0, 10), Option("m", 5, 9), Option("l", 10, 0)]}
    assert allocate(options, 9)["a"].format == "m"
    assert allocate(options, 10)["a"].format == "l"


def test_a_larger_format_that_loses_more_is_never_chosen() -> None:
    options = {"a": [Option("good", 4, 1), Option("bad", 5, 2)]}
    assert allocate(options, 50)["a"].format == "good"


def test_a_budget_too_small_is_a_bug_of_the_caller() -> None:
    with pytest.raises(ValueError, match="a budget of 3 bytes, 2 too few"):
        allocate({"a": [Option("s", 5, 1)]}, 3)
