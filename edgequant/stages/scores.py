"""The arithmetic of perplexity and KL divergence, on logits; sums are float64.

Source: perplexity.cpp, llama.cpp 0c1e57098, which sums float32 powers and, for KL, leaves out what
has a log-probability below -16; here every token of the vocabulary counts.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgequant.blocks import Floats

Scores = NDArray[np.float64]
_VALUES = 1 << 21  # of logits in float64 at once, 16 MiB


@dataclass(frozen=True)
class Estimate:
    """A mean and its standard error, sqrt(var / (n - 1))."""

    mean: float
    error: float

    @property
    def perplexity(self) -> "Estimate":
        """The exponential, where the values are negative log-likelihoods."""
        power = math.exp(self.mean) if self.mean < 700 else math.inf
        return Estimate(power, power * self.error)


def estimate(values: Scores) -> Estimate:
    """Estimate the mean of (n,) values; the error of a single one is 0."""
    error = math.sqrt(values.var() / (len(values) - 1)) if len(values) > 1 else 0.0
    return Estimate(float(values.mean()), error)


def _log_softmax(logits: Floats) -> Scores:
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return shifted


def _row_slices(logits: Floats) -> Iterator[slice]:
    step = max(1, _VALUES // logits.shape[1])
    for start in range(0, len(logits), step):
        yield slice(start, start + step)


def surprise(logits: Floats, targets: NDArray[np.int32]) -> Scores:
    """Return the negative log-likelihood of each target.

    Args:
        logits: (rows, vocab).
        targets: (rows,) the token that came after each.

    Returns:
        (rows,) in nats.
    """
    found = np.empty(len(logits))
    for part in _row_slices(logits):
        log_p = _log_softmax(logits[part])
        found[part] = -np.take_along_axis(log_p, targets[part, None], axis=1)[:, 0]
    return found


def divergence(reference: Floats, candidate: Floats) -> Scores:
    """Return KL(reference || candidate) of each row, in nats.

    Args:
        reference: (rows, vocab) logits.
        candidate: (rows, vocab) logits.

    Returns:
        (rows,), >= 0 up to rounding.
    """
    found = np.empty(len(reference))
    for part in _row_slices(reference):
        log_p = _log_softmax(reference[part])
        log_q = _log_softmax(candidate[part])
        found[part] = np.sum(np.exp(log_p) * (log_p - log_q), axis=1)
    return found


def same_top(reference: Floats, candidate: Floats) -> Scores:
    """Return 1.0 for each row whose most likely token is the same, else 0.0."""
    return np.asarray(reference.argmax(axis=1) == candidate.argmax(axis=1), dtype=np.float64)
