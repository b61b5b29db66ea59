"""The next token from logits: pure functions, in llama.cpp's order and with its meaning.

Order: repeat penalty, top-k, top-p, min-p, temperature, draw. Once ranked, best first, each filter
keeps the first so many candidates. It knows token ids as numbers and no model.

Source: llama-sampler.cpp and the default order of common.h, llama.cpp 0c1e57098.
"""

import math
import secrets
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgequant.blocks import Floats
from edgequant.device.protocol import Sampling

Ids = NDArray[np.intp]


def penalize(logits: Floats, recent: Sequence[int], penalty: float) -> Floats:
    """Make recent tokens less likely.

    Args:
        logits: (vocab,).
        recent: token ids; one that comes twice is penalized once.
        penalty: divides positive logits and multiplies the others; 1 changes nothing.

    Returns:
        (vocab,), a copy where anything changed.
    """
    if penalty == 1.0 or not recent:
        return logits
    ids = np.unique(np.asarray(recent, dtype=np.intp))
    changed = logits.copy()
    seen = changed[ids]
    changed[ids] = np.where(seen > 0, seen / np.float32(penalty), seen * np.float32(penalty))
    return changed


def rank(logits: Floats, k: int) -> Ids:
    """Return the ids of the `k` largest logits, best first; equal logits by id; k <= 0: all."""
    if 0 < k < len(logits):
        threshold = np.partition(logits, len(logits) - k)[len(logits) - k]
        candidates = np.flatnonzero(logits >= threshold)
        return candidates[np.argsort(-logits[candidates], kind="stable")][:k]
    return np.argsort(-logits, kind="stable")


def softmax(logits: Floats) -> Floats:
    """Return probabilities, (n,) float32, of (n,) logits."""
    powers = np.exp(logits - logits.max())
    return np.asarray(powers / powers.sum(), dtype=np.float32)


def count_top_p(ranked: Floats, p: float) -> int:
    """Return how many of the best hold at least `p` of the probability; all, if p >= 1.

    Args:
        ranked: (n,) logits, best first.
        p: 0..1; at least one token is kept.
    """
    if p >= 1.0:
        return len(ranked)
    reached = np.cumsum(softmax(ranked)) >= np.float32(p)
    return int(np.argmax(reached)) + 1 if reached.any() else len(ranked)


def count_min_p(ranked: Floats, p: float) -> int:
    """Return how many are at least `p` times as likely as the best; all, if p <= 0.

    Args:
        ranked: (n,) logits, best first.
        p: 0..1; at least one token is kept.
    """
    if p <= 0.0:
        return len(ranked)
    return max(1, int(np.count_nonzero(ranked >= ranked[0] + np.float32(math.log(p)))))


def candidates(
    logits: Floats, sampling: Sampling, recent: Sequence[int]
) -> tuple[Ids, NDArray[np.float64]]:
    """Return the ids that may come next, best first, and the probability of each.

    Args:
        logits: (vocab,).
        sampling: what to keep; with a temperature of 0 or less only the best remains.
        recent: tokens so far, prompt included; the last `sampling.repeat_last` are penalized.
    """
    last = sampling.repeat_last
    logits = penalize(logits, recent[-last:] if last > 0 else (), sampling.repeat_penalty)
    if sampling.temperature <= 0:
        return np.array([np.argmax(logits)]), np.ones(1)
    ids = rank(logits, sampling.top_k)
    ids = ids[: count_top_p(logits[ids], sampling.top_p)]
    ids = ids[: count_min_p(logits[ids], sampling.min_p)]
    scaled = logits[ids].astype(np.float64) / sampling.temperature
    powers = np.exp(scaled - scaled[0])
    return ids, powers / powers.sum()


class Sampler:
    """Draws tokens; `seed` is the one given, or the one drawn for it.

    The same seed and logits give the same tokens, on any machine with the same NumPy generator.
    """

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling
        self.seed = secrets.randbits(32) if sampling.seed is None else sampling.seed
        self._rng = np.random.default_rng(self.seed)

    def pick(self, logits: Floats, recent: Sequence[int]) -> int:
        """Return the next token for (vocab,) logits after the tokens `recent`."""
        ids, chances = candidates(logits, self.sampling, recent)
        if len(ids) == 1:
            return int(ids[0])
        place = np.searchsorted(np.cumsum(chances), self._rng.random(), side="right")
        return int(ids[min(int(place), len(ids) - 1)])
