"""IQ2_XXS: superblocks of 256 weights in 8 sub-blocks of 32, x = (d (1 + 2 sc)) ± g.

Eight weights are one of 256 points g of levels 1, 3.125 and 5.375. A sub-block has four numbers of
points, a byte each, and a word with, from its low bit, 7 signs for each 8 weights and its 4-bit
scale.
"""

import numpy as np

from edgequant.blocks import Floats
from edgequant.formats.format import Blocks, QuantFormat, register
from edgequant.formats.grid import grid_of
from edgequant.formats.grid_blocks import TWO_BITS, GridBlocks, Parts, pack_words, unpack_words
from edgequant.formats.search import Effort

SUB_BLOCK = np.dtype([("qs", "u1", 4), ("word", "<u4")])
BLOCK = np.dtype([("d", "<f2"), ("subs", SUB_BLOCK, 8)])  # 66 bytes
BLOCKS = GridBlocks(grid_of("IQ2_XXS", unit=8), each=8, even=True, efforts=TWO_BITS)


def encode(weights: Floats, importance: Floats | None, effort: Effort) -> Blocks:
    """(rows, blocks, 256) float32 -> (rows, blocks) of BLOCK, by weighted squared error."""
    found = BLOCKS.encode(weights, importance, effort)
    blocks = np.empty(weights.shape[:2], BLOCK)
    flat = blocks.reshape(-1)
    flat["d"] = found.d
    _put_points(flat, found)
    return blocks


def _put_points(blocks: Blocks, found: Parts) -> None:
    blocks["subs"]["qs"] = found.points.reshape(-1, 8, 4)
    blocks["subs"]["word"] = pack_words(found)


def refit(blocks: Blocks, weights: Floats) -> None:
    """Put the points nearest to (n, 256) weights into (n,) of BLOCK."""
    codes = unpack_words(blocks["subs"]["word"])[0]
    _put_points(blocks, BLOCKS.refit(blocks["d"].astype(np.float32), codes, weights))


def decode(blocks: Blocks, out: Floats) -> None:
    """(n,) of BLOCK into (n, 256) float32."""
    codes, signs = unpack_words(blocks["subs"]["word"])
    points = blocks["subs"]["qs"].reshape(-1, 32)
    BLOCKS.decode(Parts(blocks["d"].astype(np.float32), codes, points, signs), out)


IQ2_XXS = register(QuantFormat("IQ2_XXS", BLOCK, encode, decode, refit))
