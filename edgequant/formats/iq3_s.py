"""IQ3_S: superblocks of 256 weights in 8 sub-blocks of 32, x = (d (1 + 2 sc)) ± g.

Four weights are one of 512 points g of levels 1, 3 … 15: the low 8 bits of its number in `qs`, the
ninth of point j of sub-block i at bit j of byte i of `qh`. Signs are a bit each. The 4-bit scales
of sub-blocks 2i and 2i + 1 share byte i of `scales`.
"""

import numpy as np

from edgequant.blocks import Floats
from edgequant.formats.format import Blocks, QuantFormat, register
from edgequant.formats.grid import grid_of
from edgequant.formats.grid_blocks import THREE_BITS, GridBlocks, Parts, pack_codes, unpack_codes
from edgequant.formats.search import Effort

# 110 bytes
BLOCK = np.dtype(
    [("d", "<f2"), ("qs", "u1", 64), ("qh", "u1", 8), ("signs", "u1", 32), ("scales", "u1", 4)]
)
BLOCKS = GridBlocks(grid_of("IQ3_S", unit=1), each=8, even=False, efforts=THREE_BITS)


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
    ninth = (found.points >> 8).reshape(-1, 8, 8).astype(np.uint8)
    blocks["qh"] = np.packbits(ninth, axis=-1, bitorder="little")[..., 0]
    blocks["signs"] = found.signs


def refit(blocks: Blocks, weights: Floats) -> None:
    """Put the points nearest to (n, 256) weights into (n,) of BLOCK."""
    codes = unpack_codes(blocks["scales"])
    _put_points(blocks, BLOCKS.refit(blocks["d"].astype(np.float32), codes, weights))


def decode(blocks: Blocks, out: Floats) -> None:
    """(n,) of BLOCK into (n, 256) float32."""
    ninth = np.unpackbits(blocks["qh"], axis=-1, bitorder="little")
    points = blocks["qs"] | ninth.astype(np.uint16) << np.uint16(8)
    codes = unpack_codes(blocks["scales"])
    BLOCKS.decode(Parts(blocks["d"].astype(np.float32), codes, points, blocks["signs"]), out)


IQ3_S = register(QuantFormat("IQ3_S", BLOCK, encode, decode, refit))
