"""Q5_1: 32 weights a block, x = d q + m with q in 0..31."""

import numpy as np

from edgequant.blocks import Floats
from edgequant.formats.affine import AffineFit
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

BLOCK = np.dtype([("d", "<f2"), ("m", "<f2"), ("qh", "u1", 4), ("qs", "u1", 16)])  # 24 bytes
TOP = 31
LARGEST = HALF_LARGEST
SEARCHES = {
    Effort.FAST: Search(fan((28.5, 29.7, 31), (-0.3, 0))),
    Effort.DEFAULT: Search(fan((27.8, 28.8, 29.8, 30.8, 31.8), (-0.45, -0.15, 0.15))),
    Effort.BEST: Search(
        fan((27.5, 28.2, 29, 29.7, 30.5, 31.2, 32), (-0.45, -0.25, -0.05, 0.15)), rounds=2
    ),
}


def encode(weights: Floats, importance: Floats | None, effort: Effort) -> Blocks:
    """(rows, blocks, 32) float32 -> (rows, blocks) of BLOCK, by weighted squared error."""
    x = turn(weights.reshape(-1, 32), LARGEST)
    fit = AffineFit(x, by_row(x, importance, len(weights)), TOP, signed=True)
    d, m = map(to_half, fit.search(SEARCHES[effort]))
    fit.assign(d, m)
    quants = turn_back(fit.levels)
    blocks = np.empty(weights.shape[:2], BLOCK)
    flat = blocks.reshape(-1)
    flat["d"] = d
    flat["m"] = -m  # the search subtracts it
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
    out *= blocks["d"].astype(np.float32)[:, None]
    out += blocks["m"].astype(np.float32)[:, None]


Q5_1 = register(QuantFormat("Q5_1", BLOCK, encode, decode))
