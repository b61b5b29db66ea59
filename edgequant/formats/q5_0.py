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
from edgequant.formats.search import HALF_LARGEST, Fit, fan, to_half, turn, turn_back

BLOCK = np.dtype([("d", "<f2"), ("qh", "u1", 4), ("qs", "u1", 16)])  # 22 bytes
BOTTOM, TOP = -16, 15
LARGEST = HALF_LARGEST * 16
STARTS = fan(stretches=(-3.5, -3, -2.5, -2, -1.5, -1, -0.5, 0, 0.5, 1))


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
