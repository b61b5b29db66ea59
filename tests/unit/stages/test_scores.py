"""The arithmetic against the plainest form of it."""

import math

import numpy as np
import pytest

from edgequant.stages import scores
from edgequant.stages.scores import divergence, estimate, same_top, surprise


def softmax(row: np.ndarray) -> np.ndarray:
    powers = np.exp(row.astype(np.longdouble))
    return powers / powers.sum()


@pytest.mark.parametrize("values", [1, 100, 1 << 21])
def test_sums_do_not_depend_on_slices(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, values: int
) -> None:
    monkeypatch.setattr(scores, "_VALUES", values)
    reference = (5 * rng.standard_normal((9, 30))).astype(np.float32)
    candidate = reference + rng.standard_normal((9, 30)).astype(np.float32)
    targets = rng.integers(0, 30, 9, dtype=np.int32)
    nll = [-math.log(softmax(row)[t]) for row, t in zip(reference, targets, strict=True)]
    kl = [
        float(np.sum(softmax(p) * np.log(softmax(p) / softmax(q))))
        for p, q in zip(reference, candidate, strict=True)
    ]
    assert surprise(reference, targets) == pytest.approx(nll, rel=1e-12)
    assert divergence(reference, candidate) == pytest.approx(kl, rel=1e-10)
    assert divergence(reference, reference).max() == 0
    assert same_top(reference, candidate).tolist() == [
        float(p.argmax() == q.argmax()) for p, q in zip(reference, candidate, strict=True)
    ]


def test_large_logits_do_not_overflow() -> None:
    logits = np.array([[3e38, -3e38, 0]], dtype=np.float32)
    assert surprise(logits, np.array([0], dtype=np.int32)) == 0
    assert divergence(logits, logits) == 0


def test_estimate_is_llama_perplexitys() -> None:
    values = np.array([1.0, 2.0, 4.0, 7.0])
    found = estimate(values)
    mean = 3.5
    variance = (6.25 + 2.25 + 0.25 + 12.25) / 4
    assert found.mean == mean
    assert found.error == pytest.approx(math.sqrt(variance / 3))
    assert found.perplexity.mean == pytest.approx(math.exp(mean))
    assert found.perplexity.error == pytest.approx(math.exp(mean) * found.error)
    assert estimate(values[:1]).error == 0
    assert estimate(values * 1000).perplexity.mean == math.inf
