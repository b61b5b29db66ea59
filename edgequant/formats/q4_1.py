"""Q4_1: 32 weights a block, x = d q + m with q in 0..15."""

import numpy as np

from edgequant.blocks import Floats
from edgequant.formats.affine import AffineFit
from edgequant.formats.costs import by_row
from edgequant.formats.format import Blocks, QuantFormat, register
from edgequant.formats.packing import pack_nibbles, unpack_nibbles
from edgequant.formats.search import HALF_LARGEST, Effort, Search, fan, to_half, turn, turn_back

BLOCK = np.dtype([("d", "<f2"), ("m", "<f2"), ("qs", "u1", 16)])  # 20 bytes
TOP = 15
LARGEST = HALF_LARGEST
SEARCHES = {
    Effort.FAST: Search(fan((13.3, 14.5, 15.6), (-0.3, 0))),
    Effort.DEFAULT: Search(fan((12.9, 13.7, 14.5, 15.3, 16.1), (-0.45, -0.15, 0.15))),
    Effort.BEST: Search(
        fan((12.5, 13, 13.5, 14, 14.5, 15, 15.5, 16), (-0.45, -0.25, -0.05, 0.15)), rounds=2
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
    flat["qs"] = pack_nibbles(quants.reshape(-1, 2, 16))
    return blocks


def decode(blocks: Blocks, out: Floats) -> None:
    """(n,) of BLOCK into (n, 32) float32."""
    unpack_nibbles(blocks["qs"], out.reshape(-1, 2, 16))
    out *= blocks["d"].astype(np.float32)[:, None]
    out += blocks["m"].astype(np.float32)[:, None]


Q4_1 = register(QuantFormat("Q4_1", BLOCK, encode, decode))
