"""Searches of a scale for blocks x ~ s L, L of an alphabet; see `search` for the terms.

An alphabet is all whole numbers of a range, or a codebook: a few numbers unevenly spaced, closer
where weights are many. Both say which level is nearest; nothing else about them matters here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from edgequant.blocks import Bytes, Floats
from edgequant.formats.search import Search, blend, first_largest, inverse


class Alphabet(Protocol):
    """The levels that a format has."""

    @property
    def low(self) -> int:
        """The lowest level, < 0."""
        ...

    @property
    def high(self) -> int:
        """The highest level, > 0."""
        ...

    def round(self, values: Floats, bound: float = inf) -> None:
        """Replace every value by the level nearest; no magnitude is above `bound`."""
        ...


@dataclass(frozen=True)
class Whole:
    """All whole numbers low..high."""

    low: int
    high: int

    def round(self, values: Floats, bound: float = inf) -> None:
        """Replace every value by the level nearest; no magnitude is above `bound`."""
        np.rint(values, out=values)
        if bound > min(-self.low, self.high) + 0.5:
            np.clip(values, np.float32(self.low), np.float32(self.high), out=values)


class Codebook:
    """Some whole numbers.

    The points half way between two of them are multiples of 1/2, so a table with one entry for each
    half finds the nearest without comparing.

    Args:
        values: the levels, ascending.
    """

    def __init__(self, values: Sequence[int]) -> None:
        self.low, self.high = values[0], values[-1]
        self.values = np.array(values, np.float32)
        halves = np.arange(2 * self.low, 2 * self.high) / 2 + 0.25
        nearest = np.abs(halves[:, None] - self.values).argmin(1)
        self._codes: Bytes = nearest.astype(np.uint8)
        self._nearest: Floats = self.values[nearest]

    def _halves(self, values: Floats) -> NDArray[np.intp]:
        values *= np.float32(2)
        values -= np.float32(2 * self.low)
        np.clip(values, np.float32(0), np.float32(len(self._codes) - 1), out=values)
        return values.astype(np.intp)

    def round(self, values: Floats, bound: float = inf) -> None:  # noqa: ARG002 -- always looked up
        """Replace every value by the level nearest."""
        self._nearest.take(self._halves(values), out=values, mode="clip")

    def codes(self, levels: Floats) -> Bytes:
        """Return the place of each level in the codebook; overwrites `levels`."""
        codes: Bytes = self._codes.take(self._halves(levels), mode="clip")
        return codes


class SymmetricFit:
    """Blocks to be fitted and room to work; made anew for every piece, so threads share nothing.

    Attributes:
        x: (k, n), the weights.
        w: (k, n), the costs, >= 0.
        wx: (k, n), their product.
        levels: (k, n), the levels under trial.
    """

    def __init__(self, x: Floats, w: Floats, alphabet: Alphabet) -> None:
        self.x = x
        self.w = w
        self.wx = w * x
        self.alphabet = alphabet
        self.levels = np.empty_like(x)

    @classmethod
    def of_levels(cls, x: Floats, alphabet: Alphabet) -> Self:
        """Return a fit whose scales are known: nothing costs, and there is nothing to search."""
        return cls(x, np.zeros_like(x), alphabet)

    def assign(self, scale: Floats) -> None:
        """Put the levels nearest under s, (n,) of either sign, into `levels`."""
        np.multiply(self.x, inverse(scale), out=self.levels)
        self.alphabet.round(self.levels)

    def sums(self, out: Floats | None = None) -> Floats:
        """Return Q and R of `levels`, (2, n), in `out` if that is given."""
        sums = np.empty((2, self.x.shape[1]), np.float32) if out is None else out
        np.einsum("kn,kn,kn->n", self.w, self.levels, self.levels, out=sums[0])
        np.einsum("kn,kn->n", self.wx, self.levels, out=sums[1])
        return sums

    def nearest(self, scale: Floats) -> Floats:
        """Return Q and R, (2, n), of the levels nearest under s, (n,)."""
        self.assign(scale)
        return self.sums()

    def best_start(self, search: Search) -> Floats:
        """Return Q and R, (2, n), of the start that gains most."""
        most: Floats = np.maximum.reduce(self.x, 0)
        least: Floats = np.minimum.reduce(self.x, 0)
        unit = self.x * inverse(np.where(most > -least, most, least))
        trials = np.empty((2, len(search.starts), len(most)), np.float32)
        for number, start in enumerate(search.starts):
            np.multiply(unit, np.float32(start.span), out=self.levels)
            self.alphabet.round(self.levels, bound=abs(start.span))
            self.sums(trials[:, number])
        _, gains = _solve(trials)
        return trials.reshape(2, -1).take(first_largest(gains), axis=1)

    def search(self, search: Search) -> Floats:
        """Search s, (n,), of either sign."""
        scale, gain = _solve(self.best_start(search))
        scale[gain <= 0] = 0
        for _ in range(search.rounds):
            fitted, explained = _solve(self.nearest(scale))
            better = explained > gain
            blend(scale, fitted, better)
            blend(gain, explained, better)
        return scale


def _solve(sums: Floats) -> tuple[Floats, Floats]:
    """Return the best s and the gain, (…, n) each, for sums (2, …, n)."""
    q, r = sums
    scale = inverse(q)
    scale *= r
    return scale, scale * r
