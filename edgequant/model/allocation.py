"""Which format each tensor gets under a budget of bytes, so that the costs add up to least.

It knows names, bytes and costs; what a cost means, and how it was measured, is its callers' matter
(`sensitivity.py`, `stages/measure.py`).

Choosing one option a tensor under one budget is the multiple-choice knapsack problem. Its
continuous relaxation is solved exactly by the lower convex hull of each tensor's (bytes, cost)
points, taking steps along the hulls in order of gain a byte (Sinha and Zoltners, Operations
Research 27, 1979): that is the Lagrangian optimum at every budget where a step ends. What is left
then buys the best single changes that fit. The result costs at most one step more than the optimum.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise


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
    hulls = {name: _hull(each) for name, each in options.items()}
    chosen = {name: hull[0] for name, hull in hulls.items()}
    for name, step in _steps(hulls):
        more = step.nbytes - chosen[name].nbytes
        if more <= left and step.cost < chosen[name].cost:
            chosen[name] = step
            left -= more
    return _fill(options, chosen, left)


def _hull(options: Sequence[Option]) -> list[Option]:
    """Return the lower convex hull, from the smallest option to the one that costs least."""
    hull: list[Option] = []
    for option in sorted(options, key=lambda o: (o.nbytes, o.cost)):
        if hull and option.cost >= hull[-1].cost:
            continue
        while len(hull) > 1 and _gain(hull[-2], hull[-1]) <= _gain(hull[-2], option):
            hull.pop()
        hull.append(option)
    return hull


def _gain(smaller: Option, larger: Option) -> float:
    """Cost saved by each byte more."""
    return (smaller.cost - larger.cost) / (larger.nbytes - smaller.nbytes)


def _steps(hulls: Mapping[str, Sequence[Option]]) -> list[tuple[str, Option]]:
    """List all steps along the hulls, those that gain most a byte first."""
    steps = [(_gain(a, b), name, b) for name, hull in hulls.items() for a, b in pairwise(hull)]
    steps.sort(key=lambda step: -step[0])  # stable: along a hull, gains only fall
    return [(name, option) for _, name, option in steps]


def _fill(
    options: Mapping[str, Sequence[Option]], chosen: dict[str, Option], left: int
) -> dict[str, Option]:
    """Spend what is left on the change that saves most, again and again."""
    while True:
        saved, name, option = max(
            (
                (chosen[name].cost - o.cost, name, o)
                for name, each in options.items()
                for o in each
                if o.nbytes - chosen[name].nbytes <= left
            ),
            key=lambda change: change[0],
        )
        if saved <= 0:
            return chosen
        left -= option.nbytes - chosen[name].nbytes
        chosen[name] = option
