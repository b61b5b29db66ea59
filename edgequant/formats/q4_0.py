"""Q4_0: 32 weights a block, x = d (q - 8) with q in 0..15."""

import numpy as np

from edgequant.blocks import Floats
from edgequant.formats.costs import by_row
from edgequant.formats.format import Blocks, QuantFormat, register
from edgequant.formats.packing import pack_nibbles, unpack_nibbles
from edgequant.formats.search import HALF_LARGEST, Effort, Search, fan, to_half, turn, turn_back
from edgequant.formats.symmetric import SymmetricFit, Whole

BLOCK = np.dtype([("d", "<f2"), ("qs", "u1", 16)])  # 18 bytes
LEVELS = Whole(-8, 7)
LARGEST = HALF_LARGEST * 8
SEARCHES = {
    Effort.FAST: Search(fan((-6.3, -6.9, -7.5, -8.1, -8.7, 7))),
    Effort.DEFAULT: Search(
        fan((-6.1, -6.5, -6.9, -7.3, -7.7, -8.1, -8.5, -8.9, -9.3, 6.3, 6.7, 7.1, 7.5))
    ),
    Effort.BEST: Search(
        fan([*(-9.6 + i / 4 for i in range(18)), *(5.2 + i / 4 for i in range(13))]), rounds=2
    ),
}


def encode(weights: Floats, importance: Floats | None, effort: Effort) -> Blocks:
    """(rows, blocks, 32) float32 -> (rows, blocks) of BLOCK, by weighted squared error."""
    x = turn(weights.reshape(-1, 32), LARGEST)
    fit = SymmetricFit(x, by_row(x, importance, len(weights)), LEVELS)
    d = to_half(fit.search(SEARCHES[effort]))
    fit.assign(d)
    fit.levels -= LEVELS.low
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
