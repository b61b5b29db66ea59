"""BF16: the upper half of a float32, rounded to nearest even. NumPy has no such type."""

import numpy as np

from edgequant.blocks import Floats
from edgequant.formats.format import Blocks, QuantFormat, register
from edgequant.formats.search import Effort

BLOCK = np.dtype("<u2")
LARGEST = np.array(0x7F7F0000, np.uint32).view(np.float32)


def encode(weights: Floats, importance: Floats | None, effort: Effort) -> Blocks:  # noqa: ARG001 -- no choice to weigh
    """(rows, blocks, 1) float32, finite -> (rows, blocks); never rounds up to infinity."""
    bits = np.clip(weights[..., 0], -LARGEST, LARGEST).view(np.uint32)
    odd = (bits >> 16) & 1  # adding just under a half, or a half to odd numbers, ties to even
    return ((bits + odd + 0x7FFF) >> 16).astype(BLOCK)


def decode(blocks: Blocks, out: Floats) -> None:
    """(n,) into (n, 1) float32, exactly."""
    np.left_shift(blocks, 16, out=out.view(np.uint32)[:, 0], dtype=np.uint32)


BF16 = register(QuantFormat("BF16", BLOCK, encode, decode))
