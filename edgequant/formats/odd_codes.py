"""Superblocks whose sub-blocks have a scale s = d c, c one of the odd numbers 1, 3 … 31.

The IQ2 and IQ3 formats store (c - 1) / 2 in 4 bits, and signs elsewhere, so d and every s are above
zero. As in `signed_codes`: at fixed points the error of a sub-block is Q (s - R / Q)² and a
constant, so under any d its best code is the odd number nearest to R / (Q d).

1. d is tried with the largest scale at several codes; the d that loses least stays;
2. `sweeps` times: d by least squares with codes and points fixed, rounded to float16; then every
   code is moved by one step, points reassigned and the true error compared. Nothing is kept that is
   not better.

It does not know layouts, or where costs come from; the terms are those of `search`.
"""

from dataclasses import dataclass

import numpy as np

from edgequant.blocks import Bytes, Floats
from edgequant.formats.grid import GridFit
from edgequant.formats.search import blend, inverse, to_half

AIMS = (32.5, 31.5, 31.0, 30.0, 29.0, 28.0, 27.0, 26.0)
TOP = np.float32(31)
MOVES = (2, -2)


@dataclass(frozen=True)
class OddCodes:
    """What is stored: d (n,), float16 values, and codes (n, each), 0..15."""

    d: Floats
    codes: Bytes


def odd_codes(fit: GridFit, scale: Floats, each: int, *, sweeps: int, near: int) -> OddCodes:
    """Choose codes near s, (n x each,); leaves `fit.points` nearest under them."""
    state = _Odd(fit, scale, each, near)
    for _ in range(sweeps):
        state.refit()
        for step in MOVES:
            state.move(step)
    fit.assign(state.codes * state.wide, near)
    halves = (state.codes - 1) / 2
    return OddCodes(state.d, halves.astype(np.uint8).reshape(-1, each))


def _nearest(values: Floats) -> Floats:
    """The odd numbers 1..31 nearest; overwrites `values`."""
    values -= 1
    values *= np.float32(0.5)
    np.rint(values, out=values)
    values *= 2
    values += 1
    return np.clip(values, np.float32(1), TOP, out=values)


class _Odd:
    """Codes and d on their way down, with the true error of each sub-block."""

    def __init__(self, fit: GridFit, scale: Floats, each: int, near: int) -> None:
        self.fit, self.each, self.near = fit, each, near
        fit.assign(scale, near)
        self.sums = fit.sums()
        self.d, self.codes = self._grid()
        self.wide = np.repeat(self.d, each)
        self.error, self.sums = self._try(self.codes, self.wide)

    def _grid(self) -> tuple[Floats, Floats]:
        """Return d (n,) and codes (n x each,) by step 1."""
        q, r = (np.ascontiguousarray(part.reshape(-1, self.each).T) for part in self.sums)
        ideal = r * inverse(q)
        largest = ideal.max(0)
        d, codes, least = self._codes(largest, AIMS[0], ideal, q)
        for aim in AIMS[1:]:
            other_d, other_codes, lost = self._codes(largest, aim, ideal, q)
            better = lost < least
            blend(d, other_d, better)
            blend(codes, other_codes, np.broadcast_to(better, codes.shape))
            blend(least, lost, better)
        return d, codes.T.reshape(-1)

    def _codes(
        self, largest: Floats, aim: float, ideal: Floats, q: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """Return d (n,), codes (each, n) and the sum of Q (s - R / Q)², (n,), at one aim."""
        d = to_half(largest / np.float32(aim))
        codes = _nearest(ideal * inverse(d))
        missed = codes * d
        missed -= ideal
        lost: Floats = np.einsum("en,en,en->n", q, missed, missed)
        return d, codes, lost

    def _try(self, codes: Floats, d: Floats) -> tuple[Floats, Floats]:
        """Return the error, short of sum w x², and the sums, points reassigned."""
        s = codes * d
        self.fit.assign(s, self.near)
        sums = self.fit.sums()
        return s * (s * sums[0] - 2 * sums[1]), sums

    def refit(self) -> None:
        """Refit d of every superblock; keep it where the error falls."""
        q, r = self.sums
        above = np.maximum(self._total(self.codes * r), 0)
        d = to_half(above * inverse(self._total(self.codes * self.codes * q)))
        wide = np.repeat(d, self.each)
        error, sums = self._try(self.codes, wide)
        better = self._total(error) < self._total(self.error)
        blend(self.d, d, better)
        each_better = np.repeat(better, self.each)
        blend(self.wide, wide, each_better)
        blend(self.error, error, each_better)
        blend(self.sums, sums, each_better)

    def move(self, step: int) -> None:
        """Move every code by `step`."""
        codes = np.clip(self.codes + np.float32(step), np.float32(1), TOP)
        error, sums = self._try(codes, self.wide)
        better = error < self.error
        blend(self.codes, codes, better)
        blend(self.error, error, better)
        blend(self.sums, sums, better)

    def _total(self, values: Floats) -> Floats:
        total: Floats = values.reshape(-1, self.each).sum(1)
        return total
