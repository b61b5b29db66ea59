"""IQ3_XXS: superblocks of 256 weights in 8 sub-blocks of 32, x = (d (1 + 2 sc)) ± g.

Four weights are one of 256 points g of levels 1, 3 … 13, 15.5, a byte in `qs`. Word i of `words`
has, from its low bit, 7 signs for each 8 weights of sub-block i, and its 4-bit scale.
"""

import numpy as np

from edgequant.blocks import Floats
from edgequant.formats.format import Blocks, QuantFormat, register
from edgequant.formats.grid import grid_of
from edgequant.formats.grid_blocks import THREE_BITS, GridBlocks, Parts, pack_words, unpack_words
from edgequant.formats.search import Effort

BLOCK = np.dtype([("d", "<f2"), ("qs", "u1", 64), ("words", "<u4", 8)])  # 98 bytes
BLOCKS = GridBlocks(grid_of("IQ3_XXS", unit=4), each=8, even=True, efforts=THREE_BITS)


def encode(weights: Floats, importance: Floats | None, effort: Effort) -> Blocks:
    """(rows, blocks, 256) float32 -> (rows, blocks) of BLOCK, by weighted squared error."""
    found = BLOCKS.encode(weights, importance, effort)
    blocks = np.empty(weights.shape[:2], BLOCK)
    flat = blocks.reshape(-1)
    flat["d"] = found.d
    _put_points(flat, found)
    return blocks


def _put_points(blocks: Blocks, found: Parts) -> None:
    blocks["qs"] = found.points
    blocks["words"] = pack_words(found)


def refit(blocks: Blocks, weights: Floats) -> None:
    """Put the points nearest to (n, 256) weights into (n,) of BLOCK."""
    codes = unpack_words(blocks["words"])[0]
    _put_points(blocks, BLOCKS.refit(blocks["d"].astype(np.float32), codes, weights))


def decode(blocks: Blocks, out: Floats) -> None:
    """(n,) of BLOCK into (n, 256) float32."""
    codes, signs = unpack_words(blocks["words"])
    BLOCKS.decode(Parts(blocks["d"].astype(np.float32), codes, blocks["qs"], signs), out)


IQ3_XXS = register(QuantFormat("IQ3_XXS", BLOCK, encode, decode, refit))
