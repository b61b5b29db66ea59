"""Weights for the parity tests of shaders: every format that has kernels, any bits."""

import numpy as np

from edgequant.blocks import BLOCK_TYPES, TensorInfo, Weight
from edgequant.formats.format import find, quantize
from edgequant.formats.matrix import Matrix
from edgequant.formats.search import Effort
from edgequant.graph.kernels.compiled import FLOATS, INTEGERS

FORMATS = FLOATS + INTEGERS


def lengths(fmt: str) -> tuple[int, ...]:
    """Return row lengths: the edges around a block, or for floats around a unit and a subgroup."""
    weights = BLOCK_TYPES[fmt].weights
    if weights == 1:
        return (1, 31, 32, 33, 36, 255, 256, 257)
    return (weights, 3 * weights) if weights == 256 else (32, 96, 256, 288)


def random_weight(fmt: str, rows: int, columns: int, rng: np.random.Generator) -> Matrix:
    """Return a matrix whose quants are random bits and whose scales are those of real weights."""
    values = rng.standard_normal((rows, columns), np.float32)
    values *= np.exp(rng.standard_normal((rows, 1), np.float32))  # rows of different sizes
    encoded = quantize(find(fmt), values, effort=Effort.FAST)
    info = TensorInfo("weight", BLOCK_TYPES[fmt], (rows, columns))
    return Matrix(Weight(info, encoded))
