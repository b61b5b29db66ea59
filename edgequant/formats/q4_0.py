"""Q4_0: 32 weights a block, x = d (q - 8) with q in 0..15."""

import numpy as np

from edgequant.blocks import Floats
from edgequant.formats.costs import by_row
from edgequant.formats.format import Blocks, QuantFormat, register
from edgequant.formats.packing import pack_nibbles, unpack_nibbles
from edgequant.formats.search import HALF_LARGEST, Fit, fan, to_half, turn, turn_back

BLOCK = np.dtype([("d", "<f2"), ("qs", "u1", 16)])  # 18 bytes
BOTTOM, TOP = -8, 7
LARGEST = HALF_LARGEST * 8
STARTS = fan(stretches=(-2.1, -1.7, -1.3, -0.9, -0.5, -0.1, 0.3, 0.7, 1.1))


def encode(weights: Floats, importance: Floats | None) -> Blocks:
    """(rows, blocks, 32) float32 -> (rows, blocks) of BLOCK, by weighted squared error."""
    x = turn(weights.reshape(-1, 32), LARGEST)
    fit = Fit(x, by_row(x, importance, len(weights)))
    d = to_half(fit.symmetric(BOTTOM, TOP, STARTS))
    fit.assign_symmetric(d, BOTTOM, TOP)
    fit.levels -= BOTTOM
    quants = turn_back(fit.levels)
    blocks = np.empty(weights.shape[:2], BLOCK)
    flat = blocks.reshape(-1)
    flat["d"] = d
    flat["qs"] = pack_nibbles(quants.reshape(-1, 2, 16))
    return blocks


def decode(blocks: Blocks, out: Floats) -> None:
    """(n,) of BLOCK into (n, 32) float32."""
    unpack_nibbles(blocks["qs"], out.reshape(-1, 2, 16))
    out -= 8
    out *= blocks["d"].astype(np.float32)[:, None]


Q4_0 = register(QuantFormat("Q4_0", BLOCK, encode, decode))
