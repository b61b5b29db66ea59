"""What all scale searches share: how hard to look, roundings to start from, and careful arithmetic.

A block of k weights x with costs w is stored as levels L, small integers, and one or two numbers:

    symmetric   x ~ s L            L of an alphabet        error  sum w (x - s L)²
    affine      x ~ s L - m        0 <= L <= top           error  sum w (x - s L + m)²

Given the numbers, the best levels are the nearest ones. Given the levels, the best numbers are a
weighted least squares solution, in sums over the block alone. With A = sum w, B = sum w x,
P = sum w L, Q = sum w L², R = sum w x L:

    symmetric   s = R / Q                                        gain = s R
    affine      s = (A R - B P) / (A Q - P²)
                m = (P R - B Q) / (A Q - P²)                     gain = s R - m B

where gain is how much of sum w x² the fit explains. Both steps never raise the error, so taking
them in turn goes downhill, into one of many near minima: a rounding error is a sawtooth. Hence the
searches (`affine`, `symmetric`) try `Start`s, a fan of roundings of the block stretched over
slightly more or fewer levels than there are and shifted by a part of one, keep the one that gains
most, and walk on from there.

Blocks lie along the second axis, the weights of a block along the first, so that every sum over a
block is an addition of whole rows: five to thirty times as fast in NumPy as sums over a short last
axis. All is float32: the gains of two starts differ by 1e-3 of the error or do not matter.

It does not know formats, superblocks or where costs come from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from edgequant.blocks import Bytes, Floats

HALF_LARGEST = 65504.0
NORMAL = np.float32(1e-36)  # below this, 1 / v is not to be trusted in float32
SINGULAR = np.float32(1e-6)  # relative; below it a determinant is rounding noise


class Effort(Enum):
    """How hard an encoder looks for a smaller error."""

    FAST = "fast"
    DEFAULT = "default"
    BEST = "best"


@dataclass(frozen=True)
class Start:
    """A first rounding: L = round(u span + shift).

    In an affine search u is the block scaled to 0..1, and a shift is above -1/2. In a symmetric one
    u is x over the largest magnitude, with its sign, so that the largest takes the level `span`,
    and there is no shift.
    """

    span: float
    shift: float = 0.0


@dataclass(frozen=True)
class Search:
    """How much work one effort is.

    Attributes:
        starts: the fan of first roundings.
        rounds: how often levels and numbers are refitted after the best start.
        sweeps: how often the codes of a superblock are walked through, where there are any.
    """

    starts: tuple[Start, ...]
    rounds: int = 1
    sweeps: int = 0


Searches = Mapping[Effort, Search]


def fan(spans: Sequence[float], shifts: Sequence[float] = (0.0,)) -> tuple[Start, ...]:
    """Every span with every shift."""
    return tuple(Start(span, shift) for span in spans for shift in shifts)


def inverse(values: Floats) -> Floats:
    """1 / values, and 0 for what is zero or too small to divide by."""
    inverted = np.zeros_like(values)
    return np.reciprocal(values, out=inverted, where=np.abs(values) > NORMAL)


def inverse_of_difference(larger: Floats, smaller: Floats) -> Floats:
    """1 / (larger - smaller), and 0 where the difference is rounding noise; overwrites `larger`."""
    least = np.maximum(larger * SINGULAR, NORMAL)
    larger -= smaller
    return np.reciprocal(larger, out=np.zeros_like(larger), where=larger > least)


def to_half(values: Floats) -> Floats:
    """Round to float16 and back; what is too large for it is held at its largest."""
    held = np.clip(values, -HALF_LARGEST, HALF_LARGEST)
    return held.astype(np.float16).astype(np.float32)


def blend(kept: Floats, new: Floats, better: NDArray[np.bool_]) -> None:
    """Put `new` into `kept` where it is `better`, (n,) or as they are, bit by bit.

    As np.copyto with a mask, which guesses every branch and is wrong half the time: five times as
    slow on a mask without a pattern.
    """
    bits = kept.view(np.int32)
    change = bits ^ new.view(np.int32)
    change &= -better.astype(np.int32)
    bits ^= change


def first_largest(values: Floats) -> NDArray[np.intp]:
    """Return where each column's largest is, the first of equals, in the flat (t, n) values.

    For t <= 127 trials; a quarter of argmax's time along this axis.
    """
    trials, count = values.shape
    found = (values == np.maximum.reduce(values, 0)).view(np.int8)
    found *= np.arange(trials, 0, -1, dtype=np.int8)[:, None]
    place: NDArray[np.intp] = trials - np.maximum.reduce(found, 0).astype(np.intp)
    place *= count
    place += np.arange(count)
    return place


def turn(blocks: Floats, largest: float) -> Floats:
    """(n, k) -> (k, n), the weights of a block along the first axis, held within ±`largest`."""
    turned = np.ascontiguousarray(blocks.T)  # and then clip: at once takes twice as long
    return np.clip(turned, np.float32(-largest), np.float32(largest), out=turned)


def turn_back(levels: Floats) -> Bytes:
    """(k, n) whole numbers 0..255 -> (n, k) bytes."""
    return np.ascontiguousarray(levels.astype(np.uint8).T)
