"""IQ2_S: superblocks of 256 weights in 16 sub-blocks of 16, x = (d (1 + 2 sc)) ± g.

Eight weights are one of 1024 points g of levels 1, 3.125 and 5.375: the low 8 bits of its number in
`qs`, the two high bits of points 4i to 4i + 3 in byte i of `qh`, from its low bits. Signs are a bit
each. The 4-bit scales of sub-blocks 2i and 2i + 1 share byte i of `scales`.
"""

import numpy as np

from edgequant.blocks import Floats
from edgequant.formats.format import Blocks, QuantFormat, register
from edgequant.formats.grid import grid_of
from edgequant.formats.grid_blocks import TWO_BITS, GridBlocks, Parts, pack_codes, unpack_codes
from edgequant.formats.packing import pack_pairs, unpack_pairs
from edgequant.formats.search import Effort

# 82 bytes
BLOCK = np.dtype(
    [("d", "<f2"), ("qs", "u1", 32), ("signs", "u1", 32), ("qh", "u1", 8), ("scales", "u1", 8)]
)
BLOCKS = GridBlocks(grid_of("IQ2_S", unit=8), each=16, even=False, efforts=TWO_BITS)


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
    blocks["qs"] = found.points & 255
    high = (found.points >> 8).astype(np.uint8)
    blocks["qh"] = pack_pairs(high.reshape(-1, 8, 4).swapaxes(1, 2))
    blocks["signs"] = found.signs


def refit(blocks: Blocks, weights: Floats) -> None:
    """Put the points nearest to (n, 256) weights into (n,) of BLOCK."""
    codes = unpack_codes(blocks["scales"])
    _put_points(blocks, BLOCKS.refit(blocks["d"].astype(np.float32), codes, weights))


def decode(blocks: Blocks, out: Floats) -> None:
    """(n,) of BLOCK into (n, 256) float32."""
    high = np.empty((len(blocks), 8, 4), np.uint8)
    unpack_pairs(blocks["qh"], high.swapaxes(1, 2))
    points = blocks["qs"] | high.reshape(-1, 32).astype(np.uint16) << np.uint16(8)
    codes = unpack_codes(blocks["scales"])
    BLOCKS.decode(Parts(blocks["d"].astype(np.float32), codes, points, blocks["signs"]), out)


IQ2_S = register(QuantFormat("IQ2_S", BLOCK, encode, decode, refit))
