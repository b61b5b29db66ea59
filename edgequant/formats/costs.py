"""What an error on each weight costs: the w of the scale searches, from importance and size.

An output is sum x a over columns, so an error on x costs its square times the mean squared
activation: the importance q. llama.cpp multiplies by sqrt(sigma² + x²), which favours large weights
a little, and models quantized so have measured a lower KL divergence; where no importance is known,
the size of a weight stands in for it. Costs are relative: only their ratios within a superblock
act. All arrays are as in `search`, the weights of a block along the first axis.
"""

import numpy as np

from edgequant.blocks import Floats


def by_importance(importance: Floats, rows: int, each: int) -> Floats:
    """Spread importance over rows: (columns,) -> (each, rows x columns / each), w = q."""
    turned = importance.reshape(-1, each).T  # (each, sub-blocks of a row)
    spread = np.broadcast_to(turned[:, None], (each, rows, turned.shape[1]))
    return np.ascontiguousarray(spread).reshape(each, -1)


def by_importance_and_size(x: Floats, variance: Floats, importance: Floats, rows: int) -> Floats:
    """Return w = q sqrt(variance + x²).

    Args:
        x: (each, n), the weights.
        variance: (n,), a typical x² about the block.
        importance: (columns,), q.
        rows: how many rows of columns the n blocks are.

    Source: the weights of quantize_row_q4_K_impl and of quantize_row_q4_0_impl, ggml-quants.c at
    llama.cpp 0c1e57098, which differ in what they take for the variance.
    """
    each, count = x.shape
    costs = x * x
    costs += variance
    np.sqrt(costs, out=costs)
    turned = np.ascontiguousarray(importance.reshape(-1, each).T)
    spread = costs.reshape(each, rows, count // rows)
    spread *= turned[:, None]
    return costs


def by_size(x: Floats) -> Floats:
    """Return w = sigma + |x|, sigma² the mean x² of the block.

    The K-quants with mins use it where no importance is known.

    Source: quantize_row_q4_K_ref, ggml-quants.c at llama.cpp 0c1e57098.
    """
    sigma = np.sqrt(mean_square(x))
    costs = np.abs(x)
    costs += sigma
    return costs


def by_superblock(
    x: Floats, importance: Floats | None, rows: int, each: int, factor: float
) -> Floats:
    """Return w of a K-quant without mins: `by_importance_and_size`, or x² + the mean x².

    The variance is `factor` times the mean x² of a superblock, `each` blocks. Without importance
    llama.cpp takes x²; adding the mean lowers both the error weighted with x² and the plain one.
    """
    variance = pooled(mean_square(x), each)
    if importance is None:
        costs = x * x
        costs += variance
        return costs
    variance *= np.float32(factor)
    return by_importance_and_size(x, variance, importance, rows)


def by_row(x: Floats, importance: Floats | None, rows: int) -> Floats:
    """Return w of the formats without superblocks: `by_importance_and_size`, or 1.

    The variance is four times the mean x² of the row. llama.cpp takes it once, which favours large
    weights so much that its own search already loses least; four times loses 1.5% less in the
    error weighted with q, and no more in KL divergence.
    """
    if importance is None:
        return np.ones_like(x)
    variance = pooled(mean_square(x), x.shape[1] // rows)
    variance *= np.float32(4)
    return by_importance_and_size(x, variance, importance, rows)


def mean_square(x: Floats) -> Floats:
    """(k, n) -> (n,), the mean of x² over each block."""
    total: Floats = np.einsum("kn,kn->n", x, x)
    total /= np.float32(len(x))
    return total


def pooled(values: Floats, size: int) -> Floats:
    """Mean of every `size` neighbours, given back to each of them: (n,) -> (n,)."""
    return np.repeat(values.reshape(-1, size).mean(1), size)
