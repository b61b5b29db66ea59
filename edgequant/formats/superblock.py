"""Superblocks with mins: scales and mins of sub-blocks as small integers times two float16 numbers.

A sub-block of a K-quant stores no float. Its scale is s = d c, with d the superblock's and c a code
of its own, and its min m = dmin e in the same way (`signed_codes` is for those without mins).
Rounding s and m to codes one by one loses a tenth of what the scale search gained, so codes, d and
dmin are chosen together. With the sums of `search` (A = sum w, B = sum w x, P = sum w L,
Q = sum w L², R = sum w x L) the error of a sub-block at fixed levels is a quadratic in s and m,

    E(s, m) = s² Q + m² A - 2 s m P - 2 s R + 2 m B + sum w x²,

whose cross term matters: a scale rounded up wants its min rounded up too. The steps are

1. a grid of a few d and dmin around "the largest scale takes the highest code"; under each pair
   every sub-block takes its best codes by E, looking at three scale codes and for each at the
   best min code, which is m = (s P - B) / A rounded; the pair of least error stays;
2. `sweeps` times: d and dmin by least squares with codes and levels fixed (two unknowns for the
   whole superblock), rounded to float16; then single codes are moved by one, always with levels
   reassigned and the true error compared. Nothing is kept that is not better.

It does not know layouts, or where costs come from. Arrays are flat, (sub-blocks of all
superblocks,), or (sub-blocks of one, superblocks) where superblocks are compared.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

import numpy as np

from edgequant.blocks import Floats
from edgequant.formats.affine import AffineFit
from edgequant.formats.search import blend, inverse, inverse_of_difference, to_half

MOVES = (1, -1)
TRIALS = 1 << 15  # errors of sub-blocks that are computed at once: 128 KiB, a few such arrays


@dataclass(frozen=True)
class AffineCodes:
    """What a K-quant with mins stores, for n superblocks of `each` sub-blocks.

    Attributes:
        d: (n,), float16 values; dmin: (n,), the same.
        scales: (n, each), 0..the highest code; mins: (n, each), the same.
    """

    d: Floats
    dmin: Floats
    scales: Floats
    mins: Floats


@dataclass(frozen=True)
class CodeRange:
    """Which codes there are, and what to try for d and dmin.

    Attributes:
        each: sub-blocks of a superblock.
        highest: the highest code; the lowest is 0.
        aims: codes, not whole, that the largest scale and the largest min are aimed at.
    """

    each: int
    highest: int
    aims: tuple[float, ...]


def affine_codes(
    fit: AffineFit, scale: Floats, minimum: Floats, codes: CodeRange, *, sweeps: int
) -> AffineCodes:
    """Choose codes near s and m, both (n x each,); leaves `fit.levels` nearest under them."""
    fit.assign(scale, minimum)
    state = _Affine(fit, codes, *_grid(fit, scale, minimum, codes))
    for _ in range(sweeps):
        state.refit()
        for step in MOVES:
            state.move_scale(step)
        for step in MOVES:
            state.move_min(step)
    state.assign()
    shaped = state.codes.reshape(2, -1, codes.each)
    return AffineCodes(state.d, state.dmin, shaped[0], shaped[1])


def _across(values: Floats, each: int) -> Floats:
    """(…, n x each) -> (…, each, n), contiguous."""
    shaped = values.reshape(*values.shape[:-1], -1, each)
    return np.ascontiguousarray(np.moveaxis(shaped, -1, -2))


def _grid(
    fit: AffineFit, scale: Floats, minimum: Floats, codes: CodeRange
) -> tuple[Floats, Floats, Floats]:
    """Return d, dmin (n,) and codes (2, n x each) by step 1, the levels of `fit` fixed."""
    each, highest = codes.each, np.float32(codes.highest)
    s, m = _across(scale, each), _across(minimum, each)
    sums = _across(np.stack([fit.sum_w, fit.sum_wx, *fit.sums()]), each)
    aims = np.array(codes.aims, np.float32)[:, None]
    d_tried, dmin_tried = to_half(s.max(0) / aims), to_half(m.max(0) / aims)  # (aims, n)
    groups = np.array_split(d_tried[:, None, None], -(-s.size * len(aims) ** 2 // TRIALS))
    total = [_least_error(sums, s, d, dmin_tried[:, None], highest).sum(2) for d in groups]
    best = np.concatenate(total).reshape(len(aims) ** 2, -1).argmin(0)
    everyone = np.arange(len(best))
    d = d_tried[best // len(aims), everyone]
    dmin = dmin_tried[best % len(aims), everyone]
    (scales, mins, lowest), *others = _trials(sums, s, d, dmin, highest)
    for other_scales, other_mins, error in others:
        better = error < lowest
        blend(scales, other_scales, better)
        blend(mins, other_mins, better)
        blend(lowest, error, better)
    return d, dmin, np.stack([scales.T.reshape(-1), mins.T.reshape(-1)])


def _trials(
    sums: Floats, scale: Floats, d: Floats, dmin: Floats, highest: np.float32
) -> Iterator[tuple[Floats, Floats, Floats]]:
    """Yield scale codes, the best min codes, and E, for codes about scale / d.

    Args:
        sums: (5, each, n), A, B, P, Q and R.
        scale: (each, n).
        d: (…, n), broadcast against (…, each, n).
        dmin: the same.
        highest: the highest code.
    """
    a, b, p, q, r = sums
    nearest = np.rint(scale * inverse(d))
    per_dmin = inverse(dmin)
    per_a = inverse(a)
    for step in (0, 1, -1):
        codes = np.clip(nearest + np.float32(step), 0, highest)
        value = codes * d
        slope = value * p
        slope -= b
        mins = (slope * per_a) * per_dmin
        np.rint(mins, out=mins)
        np.clip(mins, 0, highest, out=mins)
        error = mins * dmin
        linear = error * a
        linear -= 2 * slope
        error *= linear
        error += value * (value * q - 2 * r)
        yield codes, mins, error


def _least_error(
    sums: Floats, scale: Floats, d: Floats, dmin: Floats, highest: np.float32
) -> Floats:
    """Return the least E of `_trials`."""
    errors = (error for *_, error in _trials(sums, scale, d, dmin, highest))
    return reduce(np.minimum, errors)


class _Affine:
    """Codes, d and dmin on their way down, with the true error of each sub-block.

    What belongs to a sub-block is one array, (6, n x each), so that one `blend` keeps all of a
    trial: the codes of scale and min, the error, short of sum w x², and P, Q and R.
    """

    def __init__(
        self, fit: AffineFit, codes: CodeRange, d: Floats, dmin: Floats, chosen: Floats
    ) -> None:
        self.fit, self.each, self.highest = fit, codes.each, np.float32(codes.highest)
        self._per_w = inverse(fit.sum_w)
        self.d, self.dmin = d, dmin
        self._spread()
        self.state = self._room()
        self.state[:2] = chosen
        self._try(self.state, self._d, self._dmin)

    @property
    def codes(self) -> Floats:
        """Of scale and min, (2, n x each)."""
        return self.state[:2]

    def _room(self) -> Floats:
        return np.empty((6, len(self._d)), np.float32)

    def _spread(self) -> None:
        self._d, self._dmin = np.repeat(self.d, self.each), np.repeat(self.dmin, self.each)
        self._per_dmin = inverse(self._dmin)

    def assign(self) -> None:
        """Put the levels of the codes kept into `fit.levels`."""
        self.fit.assign(self.state[0] * self._d, self.state[1] * self._dmin)

    def _try(self, trial: Floats, d: Floats, dmin: Floats) -> None:
        """Fill in the error and the sums of a trial's codes, levels reassigned."""
        fit = self.fit
        s, m = trial[0] * d, trial[1] * dmin
        fit.assign(s, m)
        p, q, r = fit.sums(trial[3:])
        error = np.multiply(s, s * q - 2 * r, out=trial[2])
        error += m * (m * fit.sum_w + 2 * (fit.sum_wx - s * p))

    def refit(self) -> None:
        """Refit d and dmin of every superblock; keep them where the error falls."""
        c, e, before, p, q, r = self.state
        terms = (c * c * q, e * e * self.fit.sum_w, c * e * p, c * r, e * self.fit.sum_wx)
        cc, ee, ce, cx, ex = self._total(np.stack(terms))
        over = inverse_of_difference(cc * ee, ce * ce)
        dmin = np.maximum((ce * cx - cc * ex) * over, 0)
        d = np.where(dmin > 0, (cx * ee - ce * ex) * over, cx * inverse(cc))
        d, dmin = to_half(np.maximum(d, 0)), to_half(dmin)
        trial = self._room()
        trial[:2] = self.codes
        self._try(trial, np.repeat(d, self.each), np.repeat(dmin, self.each))
        better = self._total(trial[2]) < self._total(before)
        blend(self.d, d, better)
        blend(self.dmin, dmin, better)
        self._spread()
        blend(self.state, trial, np.repeat(better, self.each))

    def move_scale(self, step: int) -> None:
        """Move every scale code by `step`, with the min code that suits the levels it has."""
        trial = self._room()
        np.clip(self.state[0] + np.float32(step), 0, self.highest, out=trial[0])
        ideal = (trial[0] * self._d * self.state[3] - self.fit.sum_wx) * self._per_w
        np.clip(np.rint(ideal * self._per_dmin), 0, self.highest, out=trial[1])
        self._move(trial)

    def move_min(self, step: int) -> None:
        """Move every min code by `step`."""
        trial = self._room()
        trial[0] = self.state[0]
        np.clip(self.state[1] + np.float32(step), 0, self.highest, out=trial[1])
        self._move(trial)

    def _move(self, trial: Floats) -> None:
        self._try(trial, self._d, self._dmin)
        blend(self.state, trial, trial[2] < self.state[2])

    def _total(self, values: Floats) -> Floats:
        """Sum over superblocks: (…, n x each) -> (…, n)."""
        total: Floats = values.reshape(*values.shape[:-1], -1, self.each).sum(-1)
        return total
