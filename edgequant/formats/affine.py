"""Searches of a scale and a min for blocks x ~ s L - m, 0 <= L <= top; see `search` for the terms.

The K-quants demand m >= 0. Where the solution has m < 0 the best is on the edge, m = 0; where the
levels are all alike the system is singular and one number alone is fitted.
"""

from typing import Self

import numpy as np

from edgequant.blocks import Floats
from edgequant.formats.search import (
    NORMAL,
    Search,
    blend,
    first_largest,
    inverse,
    inverse_of_difference,
)


class AffineFit:
    """Blocks to be fitted and room to work; made anew for every piece, so threads share nothing.

    Attributes:
        x: (k, n), the weights.
        w: (k, n), the costs, >= 0.
        wx: (k, n), their product.
        top: the highest level; the lowest is 0.
        signed: whether m may be negative; else blocks above zero are measured from zero.
        sum_w: (n,), A of `search`; sum_wx: (n,), B.
        levels: (k, n), the levels under trial, whole numbers.
    """

    def __init__(self, x: Floats, w: Floats, top: int, *, signed: bool = False) -> None:
        self.x = x
        self.w = w
        self.top = top
        self.signed = signed
        self.wx = w * x
        self.sum_w = np.add.reduce(w, 0)
        self.sum_wx = np.add.reduce(self.wx, 0)
        self.levels = np.empty_like(x)

    @classmethod
    def of_levels(cls, x: Floats, top: int) -> Self:
        """Return a fit whose scales are known: nothing costs, and there is nothing to search."""
        return cls(x, np.zeros_like(x), top)

    def assign(self, scale: Floats, minimum: Floats) -> None:
        """Put the levels nearest under s and m, both (n,), into `levels`."""
        levels = np.add(self.x, minimum, out=self.levels)
        levels *= inverse(scale)
        np.rint(levels, out=levels)
        np.clip(levels, np.float32(0), np.float32(self.top), out=levels)

    def sums(self, out: Floats | None = None) -> Floats:
        """Return P, Q and R of `levels`, (3, n), in `out` if that is given."""
        sums = np.empty((3, self.x.shape[1]), np.float32) if out is None else out
        np.einsum("kn,kn->n", self.w, self.levels, out=sums[0])
        np.einsum("kn,kn,kn->n", self.w, self.levels, self.levels, out=sums[1])
        np.einsum("kn,kn->n", self.wx, self.levels, out=sums[2])
        return sums

    def solve(self, sums: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the best s, m and the gain, (n,) each, for sums (3, n); m >= 0 unless `signed`."""
        p, q, r = sums
        a, b = self.sum_w, self.sum_wx
        over = inverse_of_difference(a * q, p * p)
        scale = (a * r - b * p) * over
        minimum = (p * r - b * q) * over
        alone = over == 0 if self.signed else (over == 0) | (minimum < 0)
        # One number: the scale, or the min when that explains more, as for a block all alike.
        only_scale = np.maximum(r, 0) * inverse(q)
        only_minimum = (-b if self.signed else np.maximum(-b, 0)) * inverse(a)
        level = only_scale * r < -only_minimum * b
        np.copyto(scale, np.where(level, np.float32(0), only_scale), where=alone)
        np.copyto(minimum, np.where(level, only_minimum, np.float32(0)), where=alone)
        return scale, minimum, scale * r - minimum * b

    def gain(self, sums: Floats) -> Floats:
        """Return the gain, (…, n), as `solve`, for sums (3, …, n), but 0 if levels are all alike.

        All trials are alike for those.
        """
        p, q, r = sums
        a, b = self.sum_w, self.sum_wx
        over = inverse_of_difference(a * q, p * p)
        minimum = p * r
        minimum -= b * q
        minimum *= over
        gain: Floats = a * r
        gain -= b * p
        gain *= over  # now the scale
        gain *= r
        gain -= minimum * b
        if not self.signed:
            np.copyto(gain, r / np.maximum(q, NORMAL) * r, where=minimum < 0)
        return gain

    def search(self, search: Search) -> tuple[Floats, Floats]:
        """Search s >= 0 and m, (n,) each."""
        lowest = np.minimum.reduce(self.x, 0)
        if not self.signed:
            np.minimum(lowest, 0, out=lowest)
        unit = self.x - lowest
        widest: Floats = np.maximum.reduce(unit, 0)
        unit *= inverse(widest)
        trials = np.empty((3, len(search.starts), len(widest)), np.float32)
        stretched, span = np.empty_like(unit), None
        for number, start in enumerate(search.starts):
            if start.span != span:
                span = start.span
                np.multiply(unit, np.float32(span), out=stretched)
            levels = np.add(stretched, np.float32(start.shift), out=self.levels)
            np.rint(levels, out=levels)
            if start.span + start.shift > self.top + 0.5:  # u is 0..1, and no shift is below -1/2
                np.clip(levels, np.float32(0), np.float32(self.top), out=levels)
            self.sums(trials[:, number])
        best = trials.reshape(3, -1).take(first_largest(self.gain(trials)), axis=1)
        scale, minimum, gain = self.solve(best)
        for _ in range(search.rounds):
            self.assign(scale, minimum)
            after = self.solve(self.sums())
            better = after[2] > gain
            for kept, new in zip((scale, minimum, gain), after, strict=True):
                blend(kept, new, better)
        return scale, minimum
