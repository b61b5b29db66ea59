"""F32: the weights as they are."""

import numpy as np

from edgequant.blocks import Floats
from edgequant.formats.format import Blocks, QuantFormat, register
from edgequant.formats.search import Effort

BLOCK = np.dtype("<f4")


def encode(weights: Floats, importance: Floats | None, effort: Effort) -> Blocks:  # noqa: ARG001 -- exact anyway
    """(rows, blocks, 1) float32 -> (rows, blocks), the same numbers."""
    return weights[..., 0].astype(BLOCK)


def decode(blocks: Blocks, out: Floats) -> None:
    """(n,) into (n, 1) float32, the same numbers."""
    out[:, 0] = blocks


def refit(blocks: Blocks, weights: Floats) -> None:
    """Put (n, 1) weights into (n,)."""
    blocks[...] = weights[:, 0]


F32 = register(QuantFormat("F32", BLOCK, encode, decode, refit))
