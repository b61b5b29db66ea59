"""F16: IEEE half precision, rounded to nearest even."""

import numpy as np

from edgequant.blocks import Floats
from edgequant.formats.format import Blocks, QuantFormat, register
from edgequant.formats.search import Effort

BLOCK = np.dtype("<f2")
LARGEST = np.float32(65504)


def encode(weights: Floats, importance: Floats | None, effort: Effort) -> Blocks:  # noqa: ARG001 -- no choice to weigh
    """(rows, blocks, 1) float32 -> (rows, blocks); beyond ±65504 the largest number is kept.

    llama.cpp makes infinities of those, and a model with an infinity answers nothing but NaN.
    """
    return np.clip(weights[..., 0], -LARGEST, LARGEST).astype(BLOCK)


def decode(blocks: Blocks, out: Floats) -> None:
    """(n,) into (n, 1) float32, exactly."""
    out[:, 0] = blocks


F16 = register(QuantFormat("F16", BLOCK, encode, decode))
