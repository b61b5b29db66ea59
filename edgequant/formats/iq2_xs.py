"""IQ2_XS: superblocks of 256 weights in 16 sub-blocks of 16, x = (d (1 + 2 sc)) ± g.

Eight weights are one of 512 points g of levels 1, 3.125 and 5.375, and 7 signs: the low 9 and the
high 7 bits of a number in `qs`. The 4-bit scales of sub-blocks 2i and 2i + 1 share byte i of
`scales`.
"""

import numpy as np

from edgequant.blocks import Floats
from edgequant.formats.format import Blocks, QuantFormat, register
from edgequant.formats.grid import grid_of
from edgequant.formats.grid_blocks import (
    TWO_BITS,
    GridBlocks,
    Parts,
    eight_signs,
    pack_codes,
    seven_signs,
    unpack_codes,
)
from edgequant.formats.search import Effort

BLOCK = np.dtype([("d", "<f2"), ("qs", "<u2", 32), ("scales", "u1", 8)])  # 74 bytes
BLOCKS = GridBlocks(grid_of("IQ2_XS", unit=8), each=16, even=True, efforts=TWO_BITS)


def encode(weights: Floats, importance: Floats | None, effort: Effort) -> Blocks:
    """(rows, blocks, 256) float32 -> (rows, blocks) of BLOCK, by weighted squared error."""
    found = BLOCKS.encode(weights, importance, effort)
    blocks = np.empty(weights.shape[:2], BLOCK)
    flat = blocks.reshape(-1)
    flat["d"] = found.d
    _put_points(flat, found)
    flat["scales"] = pack_codes(found.codes)
    return blocks


def _put_points(blocks: Blocks, found: Parts) -> None:
    blocks["qs"] = found.points | seven_signs(found.signs).astype(np.uint16) << np.uint16(9)


def refit(blocks: Blocks, weights: Floats) -> None:
    """Put the points nearest to (n, 256) weights into (n,) of BLOCK."""
    codes = unpack_codes(blocks["scales"])
    _put_points(blocks, BLOCKS.refit(blocks["d"].astype(np.float32), codes, weights))


def decode(blocks: Blocks, out: Floats) -> None:
    """(n,) of BLOCK into (n, 256) float32."""
    codes = unpack_codes(blocks["scales"])
    signs = eight_signs(blocks["qs"] >> np.uint16(9))
    points = blocks["qs"] & np.uint16(511)
    BLOCKS.decode(Parts(blocks["d"].astype(np.float32), codes, points, signs), out)


IQ2_XS = register(QuantFormat("IQ2_XS", BLOCK, encode, decode, refit))
