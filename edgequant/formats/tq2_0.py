"""TQ2_0: 256 weights a block, x = d (q - 1) with q in 0..2, for models trained to three values.

In each half of 128 weights, bits 2k of byte l of `qs` hold weight l + 32k.
"""

import numpy as np

from edgequant.blocks import Bytes, Floats
from edgequant.formats.costs import by_row
from edgequant.formats.format import Blocks, QuantFormat, register
from edgequant.formats.packing import pack_pairs, unpack_pairs
from edgequant.formats.search import HALF_LARGEST, Effort, Search, fan, to_half, turn, turn_back
from edgequant.formats.symmetric import SymmetricFit, Whole

BLOCK = np.dtype([("qs", "u1", 64), ("d", "<f2")])  # 66 bytes
LEVELS = Whole(-1, 1)
LARGEST = HALF_LARGEST
SEARCHES = {
    Effort.FAST: Search(fan((1, 1.7, 2.4)), rounds=2),
    Effort.DEFAULT: Search(fan((1, 1.3, 1.6, 2, 2.5, 3, 4)), rounds=3),
    Effort.BEST: Search(fan((1, 1.2, 1.4, 1.6, 1.8, 2, 2.3, 2.6, 3, 3.5, 4, 5)), rounds=6),
}


def ternary(weights: Floats, importance: Floats | None, effort: Effort) -> tuple[Floats, Bytes]:
    """Fit d and levels of -1, 0 and 1: (rows, blocks, 256) -> d (n,), and q (n, 256) bytes 0..2.

    ggml makes d the largest magnitude, which is exact for a model of three values and loses most
    of any other; the search finds the same d for the first and half the error for the second.
    """
    x = turn(weights.reshape(-1, 256), LARGEST)
    fit = SymmetricFit(x, by_row(x, importance, len(weights)), LEVELS)
    d = to_half(fit.search(SEARCHES[effort]))
    fit.assign(d)
    fit.levels -= LEVELS.low
    return d, turn_back(fit.levels)


def encode(weights: Floats, importance: Floats | None, effort: Effort) -> Blocks:
    """(rows, blocks, 256) float32 -> (rows, blocks) of BLOCK, by weighted squared error."""
    d, quants = ternary(weights, importance, effort)
    blocks = np.empty(weights.shape[:2], BLOCK)
    flat = blocks.reshape(-1)
    flat["qs"] = pack_pairs(quants.reshape(-1, 2, 4, 32)).reshape(-1, 64)
    flat["d"] = d
    return blocks


def decode(blocks: Blocks, out: Floats) -> None:
    """(n,) of BLOCK into (n, 256) float32."""
    unpack_pairs(blocks["qs"].reshape(-1, 2, 32), out.reshape(-1, 2, 4, 32))
    out -= 1
    out *= blocks["d"].astype(np.float32)[:, None]


TQ2_0 = register(QuantFormat("TQ2_0", BLOCK, encode, decode))
