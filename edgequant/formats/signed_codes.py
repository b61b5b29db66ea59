"""Superblocks whose sub-blocks have a signed scale and no min: s = d c, c a code of either sign.

At fixed levels the error of a sub-block is Q (s - R / Q)² and a constant, so under any d its best
code is the one nearest to R / (Q d), and the sum of what is lost chooses d:

1. d is tried with the largest scale at several codes of either sign, which matters most where codes
   are few; the d that loses least stays;
2. `sweeps` times: d by least squares with codes and levels fixed, rounded to float16; then every
   code is moved by one, levels reassigned and the true error compared. Nothing is kept that is not
   better.

It does not know layouts, or where costs come from; the terms are those of `search`.
"""

from dataclasses import dataclass

import numpy as np

from edgequant.blocks import Floats
from edgequant.formats.search import blend, inverse, to_half
from edgequant.formats.symmetric import SymmetricFit

MOVES = (1, -1)


@dataclass(frozen=True)
class SignedCodes:
    """What is stored: d (n,), float16 values, and scales (n, each), whole numbers."""

    d: Floats
    scales: Floats


@dataclass(frozen=True)
class SignedRange:
    """Which codes there are, and what to try for d.

    Attributes:
        each: sub-blocks of a superblock.
        low: the lowest code.
        high: the highest.
        aims: codes, not whole, that the scale of largest magnitude is aimed at.
    """

    each: int
    low: int
    high: int
    aims: tuple[float, ...]


def signed_codes(
    fit: SymmetricFit, sums: Floats, codes: SignedRange, *, sweeps: int
) -> SignedCodes:
    """Choose codes near R / Q of `sums`, (2, n x each); leaves `fit.levels` nearest under them."""
    d, chosen = _grid(sums, codes)
    if sweeps:
        state = _Signed(fit, codes, d, chosen)
        for _ in range(sweeps):
            state.refit()
            for step in MOVES:
                state.move(step)
        d, chosen = state.d, state.codes
    fit.assign(chosen * np.repeat(d, codes.each))
    return SignedCodes(d, chosen.reshape(-1, codes.each))


def _grid(sums: Floats, codes: SignedRange) -> tuple[Floats, Floats]:
    """Return d (n,) and codes (n x each,) by step 1."""
    q, r = (np.ascontiguousarray(part.reshape(-1, codes.each).T) for part in sums)
    ideal = r * inverse(q)
    at = np.abs(ideal).argmax(0)
    largest = np.take_along_axis(ideal, at[None], 0)[0]
    d, chosen, least = _aim(codes, codes.aims[0], largest, ideal, q)
    for aim in codes.aims[1:]:
        other_d, other, lost = _aim(codes, aim, largest, ideal, q)
        better = lost < least
        blend(d, other_d, better)
        blend(chosen, other, np.broadcast_to(better, chosen.shape))
        blend(least, lost, better)
    return d, chosen.T.reshape(-1)


def _aim(
    codes: SignedRange, aim: float, largest: Floats, ideal: Floats, q: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return d (n,), codes (each, n) and the sum of Q (s - R / Q)², (n,), at one aim."""
    d = to_half(largest / np.float32(aim))
    chosen = ideal * inverse(d)
    np.rint(chosen, out=chosen)
    np.clip(chosen, np.float32(codes.low), np.float32(codes.high), out=chosen)
    missed = chosen * d
    missed -= ideal
    lost: Floats = np.einsum("en,en,en->n", q, missed, missed)
    return d, chosen, lost


class _Signed:
    """Codes and d on their way down, with the true error of each sub-block.

    What belongs to a sub-block is one array, (4, n x each), so that one `blend` keeps all of a
    trial: its code, the error, short of sum w x², and Q and R.
    """

    def __init__(self, fit: SymmetricFit, codes: SignedRange, d: Floats, chosen: Floats) -> None:
        self.fit, self.each = fit, codes.each
        self.low, self.high = np.float32(codes.low), np.float32(codes.high)
        self.state = self._room()
        self.d, self.state[0] = d, chosen
        self._d = np.repeat(self.d, self.each)
        self._try(self.state, self._d)

    @property
    def codes(self) -> Floats:
        """Of the scales, (n x each,)."""
        codes: Floats = self.state[0]
        return codes

    def _room(self) -> Floats:
        return np.empty((4, self.fit.x.shape[1]), np.float32)

    def _try(self, trial: Floats, d: Floats) -> None:
        """Fill in the error and the sums of a trial's codes, levels reassigned."""
        s = trial[0] * d
        self.fit.assign(s)
        q, r = self.fit.sums(trial[2:])
        np.multiply(s, s * q - 2 * r, out=trial[1])

    def refit(self) -> None:
        """Refit d of every superblock; keep it where the error falls."""
        codes, before, q, r = self.state
        xx, cx = self._total(np.stack([codes * codes * q, codes * r]))
        d = to_half(cx * inverse(xx))
        wide = np.repeat(d, self.each)
        trial = self._room()
        trial[0] = codes
        self._try(trial, wide)
        better = self._total(trial[1]) < self._total(before)
        each_better = np.repeat(better, self.each)
        blend(self.d, d, better)
        blend(self._d, wide, each_better)
        blend(self.state, trial, each_better)

    def move(self, step: int) -> None:
        """Move every code by `step`."""
        trial = self._room()
        np.clip(self.codes + np.float32(step), self.low, self.high, out=trial[0])
        self._try(trial, self._d)
        blend(self.state, trial, trial[1] < self.state[1])

    def _total(self, values: Floats) -> Floats:
        """Sum over superblocks: (…, n x each) -> (…, n)."""
        total: Floats = values.reshape(*values.shape[:-1], -1, self.each).sum(-1)
        return total
