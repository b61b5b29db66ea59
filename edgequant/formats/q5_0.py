"""Q5_0: 32 weights a block, x = d (q - 16) with q in 0..31."""

import numpy as np

from edgequant.blocks import Floats
from edgequant.formats.costs import by_row
from edgequant.formats.format import Blocks, QuantFormat, register
from edgequant.formats.packing import (
    FOUR,
    LOW,
    pack_bits,
    pack_nibbles,
    unpack_bits,
    unpack_nibbles,
)
from edgequant.formats.search import HALF_LARGEST, Effort, Search, fan, to_half, turn, turn_back
from edgequant.formats.symmetric import SymmetricFit, Whole

BLOCK = np.dtype([("d", "<f2"), ("qh", "u1", 4), ("qs", "u1", 16)])  # 22 bytes
LEVELS = Whole(-16, 15)
LARGEST = HALF_LARGEST * 16
SEARCHES = {
    Effort.FAST: Search(fan((-12.8, -13.6, -14.4, -15.2, -16, 15))),
    Effort.DEFAULT: Search(fan((-12.5, -13, -13.5, -14, -14.5, -15, -15.5, -16, -16.5, -17))),
    Effort.BEST: Search(
        fan([*(-17.5 + i / 3 for i in range(20)), *(12 + i / 3 for i in range(14))]), rounds=2
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
    flat["qs"] = pack_nibbles(quants.reshape(-1, 2, 16) & LOW)
    flat["qh"] = pack_bits(quants >> FOUR)
    return blocks


def decode(blocks: Blocks, out: Floats) -> None:
    """(n,) of BLOCK into (n, 32) float32."""
    quants = unpack_bits(blocks["qh"])
    quants <<= FOUR
    low = np.empty((len(blocks), 2, 16), np.uint8)
    unpack_nibbles(blocks["qs"], low)
    quants |= low.reshape(-1, 32)
    out[...] = quants
    out -= 16
    out *= blocks["d"].astype(np.float32)[:, None]


Q5_0 = register(QuantFormat("Q5_0", BLOCK, encode, decode))
