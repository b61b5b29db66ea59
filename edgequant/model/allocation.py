"""Which format each tensor gets under a budget of bytes, so that the costs add up to least.

It knows names, bytes and costs; what a cost means, and how it was measured, is its callers' matter
(`sensitivity.py`, `stages/measure.py`).

Choosing one option a tensor under one budget is the multiple-choice knapsack problem (Kellerer,
Pferschy and Pisinger, Knapsack Problems, 2004, chapter 11). It is solved by dynamic programming:
with best(c) the least cost of the tensors seen so far that take at most c bytes more than their
smallest options do, the next tensor makes it

    best'(c) = min over its options o of best(c - o's bytes more) + o's cost.

Bytes are counted in steps of a grid, rounded up, so that the budget holds; what rounding leaves of
it buys the best single changes that fit. (A greedy choice along the convex hulls is simpler, but
where a large tensor's step just does not fit, it puts the bytes where they do little.)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

STEPS = 1 << 16  # of the grid at most: 1 s for 400 tensors
_STEPS_A_TENSOR = 256  # so that rounding up costs each a 512th of its share on average


@dataclass(frozen=True)
class Option:
    """A format that a tensor could have: its bytes, and what it costs, both >= 0."""

    format: str
    nbytes: int
    cost: float


def smallest(options: Mapping[str, Sequence[Option]]) -> int:
    """Return the bytes of all tensors, each in its smallest format."""
    return sum(min(o.nbytes for o in each) for each in options.values())


def allocate(options: Mapping[str, Sequence[Option]], budget: int) -> dict[str, Option]:
    """Choose an option for each tensor.

    Args:
        options: by tensor, at least one each.
        budget: bytes that all tensors may take together, at least `smallest`.

    Returns:
        The choice by tensor; its bytes are never more than the budget.
    """
    left = budget - smallest(options)
    if left < 0:
        raise ValueError(f"a budget of {budget:,} bytes, {-left:,} too few")
    step = max(1, -(-left // min(STEPS, _STEPS_A_TENSOR * max(1, len(options)))))
    chosen = _solve(options, step, left // step)
    return _fill(options, chosen, budget - sum(option.nbytes for option in chosen.values()))


def _solve(options: Mapping[str, Sequence[Option]], step: int, capacity: int) -> dict[str, Option]:
    """Solve exactly on the grid; `capacity` steps may be taken beyond the smallest options."""
    best = np.zeros(capacity + 1)
    picks: list[NDArray[np.uint8]] = []
    steps = {name: _steps(each, step) for name, each in options.items()}
    for name, each in options.items():
        costs = np.full((len(each), capacity + 1), np.inf)
        for row, option, more in zip(costs, each, steps[name], strict=True):
            if more <= capacity:
                row[more:] = best[: capacity + 1 - more] + option.cost
        picks.append(costs.argmin(axis=0).astype(np.uint8))
        best = costs.min(axis=0)
    chosen: dict[str, Option] = {}
    at = capacity
    for name, pick in zip(reversed(list(options)), reversed(picks), strict=True):
        chosen[name] = options[name][pick[at]]
        at -= steps[name][pick[at]]
    return chosen


def _steps(options: Sequence[Option], step: int) -> list[int]:
    """Return the steps, rounded up, that each option takes beyond the smallest."""
    least = min(option.nbytes for option in options)
    return [-(-(option.nbytes - least) // step) for option in options]


def _fill(
    options: Mapping[str, Sequence[Option]], chosen: dict[str, Option], left: int
) -> dict[str, Option]:
    """Spend what is left on the change that saves most, again and again."""
    while True:
        changes = (
            (chosen[name].cost - option.cost, name, option)
            for name, each in options.items()
            for option in each
            if option.nbytes - chosen[name].nbytes <= left
        )
        saved, name, option = max(changes, key=lambda change: change[0])
        if saved <= 0:
            return chosen
        left -= option.nbytes - chosen[name].nbytes
        chosen[name] = option
