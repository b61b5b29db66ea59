"""Scale searches: which scale, and which min, make the weighted squared error of a block least.

A block of k weights x with costs w is stored as levels L, small integers, and one or two numbers:

    symmetric   x ~ s L            low <= L <= high     error  sum w (x - s L)²
    affine      x ~ s L - m        0 <= L <= top        error  sum w (x - s L + m)²

Given the numbers, the best levels are the nearest ones. Given the levels, the best numbers are a
weighted least squares solution, in sums over the block alone. With A = sum w, B = sum w x,
P = sum w L, Q = sum w L², R = sum w x L:

    symmetric   s = R / Q                                        gain = s R
    affine      s = (A R - B P) / (A Q - P²)
                m = (P R - B Q) / (A Q - P²)                     gain = s R - m B

where gain is how much of sum w x² the fit explains. Both steps never raise the error, so taking
them in turn goes downhill, into one of many near minima: a rounding error is a sawtooth. Hence the
search tries `Start`s, a fan of roundings of the block stretched over slightly more or fewer levels
than there are and shifted by a part of one, keeps the one that gains most, and walks on from there.

The K-quants demand m >= 0. Where the solution has m < 0 the best is on the edge, m = 0; where the
levels are all alike the system is singular and one number alone is fitted.

Blocks lie along the second axis, the weights of a block along the first, so that every sum over a
block is an addition of whole rows: five to thirty times as fast in NumPy as sums over a short last
axis. All is float32: the gains of two starts differ by 1e-3 of the error or do not matter.

It does not know formats, superblocks or where costs come from.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgequant.blocks import Bytes, Floats

HALF_LARGEST = 65504.0
NORMAL = np.float32(1e-36)  # below this, 1 / v is not to be trusted in float32
INFINITE = np.float32(np.inf)
SINGULAR = np.float32(1e-6)  # relative; below it a determinant is rounding noise


def inverse(values: Floats) -> Floats:
    """1 / values, and 0 for what is zero or too small to divide by."""
    inverted: Floats = np.reciprocal(np.where(np.abs(values) > NORMAL, values, INFINITE))
    return inverted


def inverse_of_difference(larger: Floats, smaller: Floats) -> Floats:
    """1 / (larger - smaller), and 0 where the difference is rounding noise; overwrites `larger`."""
    least = np.maximum(larger * SINGULAR, NORMAL)
    larger -= smaller
    inverted: Floats = np.reciprocal(np.where(larger > least, larger, INFINITE))
    return inverted


def to_half(values: Floats) -> Floats:
    """Round to float16 and back; what is too large for it is held at its largest."""
    held = np.clip(values, -HALF_LARGEST, HALF_LARGEST)
    return held.astype(np.float16).astype(np.float32)


@dataclass(frozen=True)
class Start:
    """A first rounding: L = round(u (top + stretch) + shift), u the block scaled to 0..1.

    A shift is above -1/2. In a symmetric search u is x over the largest magnitude, with its sign,
    and the factor is (low - stretch) < 0: the largest takes the lowest level, there is one more.
    """

    stretch: float
    shift: float = 0.0


class Fit:
    """Blocks to be fitted and room to work; made anew for every piece, so threads share nothing.

    Attributes:
        x: (k, n), the weights.
        w: (k, n), the costs, >= 0.
        wx: (k, n), their product.
        sum_w: (n,), A above.
        sum_wx: (n,), B above.
        levels: (k, n), the levels under trial, whole numbers.
    """

    def __init__(self, x: Floats, w: Floats) -> None:
        self.x = x
        self.w = w
        self.wx = w * x
        self.sum_w = np.add.reduce(w, 0)
        self.sum_wx = np.add.reduce(self.wx, 0)
        self.levels = np.empty_like(x)
        self._scratch = np.empty_like(x)

    def assign_affine(self, scale: Floats, minimum: Floats, top: int) -> None:
        """Put the levels nearest under s and m, both (n,), into `levels`."""
        levels = np.add(self.x, minimum, out=self.levels)
        levels *= inverse(scale)
        np.rint(levels, out=levels)
        np.clip(levels, np.float32(0), np.float32(top), out=levels)

    def assign_symmetric(self, scale: Floats, low: int, high: int) -> None:
        """Put the levels nearest under s, (n,) of either sign, into `levels`."""
        levels = np.multiply(self.x, inverse(scale), out=self.levels)
        np.rint(levels, out=levels)
        np.clip(levels, np.float32(low), np.float32(high), out=levels)

    def affine_sums(self, into: Floats | None = None) -> Floats:
        """Return P, Q and R of `levels`, (3, n)."""
        sums = np.empty((3, self.x.shape[1]), np.float32) if into is None else into
        weighted = np.multiply(self.w, self.levels, out=self._scratch)
        np.add.reduce(weighted, 0, out=sums[0])
        np.einsum("kn,kn->n", weighted, self.levels, out=sums[1])
        np.einsum("kn,kn->n", self.wx, self.levels, out=sums[2])
        return sums

    def symmetric_sums(self, into: Floats | None = None) -> Floats:
        """Return Q and R of `levels`, (2, n)."""
        sums = np.empty((2, self.x.shape[1]), np.float32) if into is None else into
        np.einsum("kn,kn,kn->n", self.w, self.levels, self.levels, out=sums[0])
        np.einsum("kn,kn->n", self.wx, self.levels, out=sums[1])
        return sums

    def solve_affine(self, sums: Floats, *, signed: bool) -> tuple[Floats, Floats, Floats]:
        """Return the best s, m and the gain, (n,) each, for sums (3, n); m >= 0 unless `signed`."""
        p, q, r = sums
        a, b = self.sum_w, self.sum_wx
        over = inverse_of_difference(a * q, p * p)
        scale = (a * r - b * p) * over
        minimum = (p * r - b * q) * over
        alone = over == 0 if signed else (over == 0) | (minimum < 0)
        # One number: the scale, or the min when that explains more, as for a block all alike.
        only_scale = np.maximum(r, 0) * inverse(q)
        only_minimum = (-b if signed else np.maximum(-b, 0)) * inverse(a)
        level = only_scale * r < -only_minimum * b
        np.copyto(scale, np.where(level, np.float32(0), only_scale), where=alone)
        np.copyto(minimum, np.where(level, only_minimum, np.float32(0)), where=alone)
        return scale, minimum, scale * r - minimum * b

    def affine_gains(self, sums: Floats, *, signed: bool) -> Floats:
        """Return the gains of many trials, (trials, n) for sums (trials, 3, n).

        As `solve_affine`'s, but for blocks whose levels are all alike: all their trials are.
        """
        p, q, r = sums[:, 0], sums[:, 1], sums[:, 2]
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
        if not signed:
            np.copyto(gain, r / np.maximum(q, NORMAL) * r, where=minimum < 0)
        return gain

    def affine(
        self, top: int, starts: Sequence[Start], *, signed: bool = False, rounds: int = 1
    ) -> tuple[Floats, Floats]:
        """Search s >= 0 and m, (n,) each.

        Args:
            top: the highest level; the lowest is 0.
            starts: the fan of first roundings.
            signed: m may be negative; else blocks above zero are measured from zero.
            rounds: how often levels and numbers are refitted after the best start.
        """
        lowest = np.minimum.reduce(self.x, 0)
        if not signed:
            np.minimum(lowest, 0, out=lowest)
        unit = self.x - lowest
        widest: Floats = np.maximum.reduce(unit, 0)
        unit *= inverse(widest)
        sums = np.empty((len(starts), 3, self.x.shape[1]), np.float32)
        for start, into in zip(starts, sums, strict=True):
            levels = np.multiply(unit, np.float32(top + start.stretch), out=self.levels)
            levels += np.float32(start.shift)
            np.rint(levels, out=levels)
            if start.stretch + start.shift > 0.5:  # u is 0..1, and no shift is below -1/2
                np.minimum(levels, np.float32(top), out=levels)
            self.affine_sums(into)
        best = pick(sums, self.affine_gains(sums, signed=signed))
        scale, minimum, gain = self.solve_affine(best, signed=signed)
        for _ in range(rounds):
            self.assign_affine(scale, minimum, top)
            after = self.solve_affine(self.affine_sums(), signed=signed)
            better = after[2] > gain
            for kept, new in zip((scale, minimum, gain), after, strict=True):
                blend(kept, new, better)
        return scale, minimum

    def symmetric(self, low: int, high: int, starts: Sequence[Start], *, rounds: int = 1) -> Floats:
        """Search s, (n,), of either sign.

        Args:
            low: the lowest level, < 0; the largest magnitude is put there.
            high: the highest level.
            starts: the fan of first roundings.
            rounds: how often levels and scale are refitted after the best start.
        """
        most: Floats = np.maximum.reduce(self.x, 0)
        least: Floats = np.minimum.reduce(self.x, 0)
        unit = self.x * inverse(np.where(most > -least, most, least))
        sums = np.empty((len(starts), 2, self.x.shape[1]), np.float32)
        for start, into in zip(starts, sums, strict=True):
            levels = np.multiply(unit, np.float32(low - start.stretch), out=self.levels)
            np.rint(levels, out=levels)
            if start.stretch - low > high + 0.5:
                np.clip(levels, np.float32(low), np.float32(high), out=levels)
            self.symmetric_sums(into)
        squares: Floats = np.maximum(sums[:, 0], NORMAL)
        gains = sums[:, 1] / squares
        gains *= sums[:, 1]
        q, r = pick(sums, gains)
        scale: Floats = r * inverse(q)
        gain = scale * r
        for _ in range(rounds):
            self.assign_symmetric(scale, low, high)
            q, r = self.symmetric_sums()
            after = r * inverse(q)
            better = after * r > gain
            blend(scale, after, better)
            blend(gain, after * r, better)
        return scale


def pick(sums: Floats, gains: Floats) -> Floats:
    """Return the sums, (m, n), of the trial that gains most.

    Args:
        sums: (trials, m, n).
        gains: (trials, n).
    """
    most: Floats = gains[0].copy()
    best = np.zeros(len(most), np.intp)
    for trial, gain in enumerate(gains[1:], start=1):
        np.maximum(best, (gain > most) * np.intp(trial), out=best)
        np.maximum(most, gain, out=most)
    flat = sums.reshape(-1)
    best *= sums[0].size
    best += np.arange(len(best))
    return np.stack([flat.take(best + at) for at in range(0, sums[0].size, len(best))])


def blend(kept: Floats, new: Floats, better: NDArray[np.bool_]) -> None:
    """Put `new` into `kept` where it is `better`, bit by bit.

    As np.copyto with a mask, which guesses every branch and is wrong half the time: five times as
    slow on a mask without a pattern.
    """
    bits = kept.view(np.int32)
    change = bits ^ new.view(np.int32)
    change &= -better.astype(np.int32)
    bits ^= change


def fan(stretches: Sequence[float], shifts: Sequence[float] = (0.0,)) -> tuple[Start, ...]:
    """Every stretch with every shift."""
    return tuple(Start(stretch, shift) for stretch in stretches for shift in shifts)


def turn(blocks: Floats, largest: float) -> Floats:
    """(n, k) -> (k, n), the weights of a block along the first axis, held within ±`largest`."""
    return np.clip(blocks.T, np.float32(-largest), np.float32(largest), order="C")


def turn_back(levels: Floats) -> Bytes:
    """(k, n) whole numbers 0..255 -> (n, k) bytes."""
    return np.ascontiguousarray(levels.astype(np.uint8).T)
