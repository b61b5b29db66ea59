"""IQ4_NL: 32 weights a block, x = d CODEBOOK[q] with q in 0..15."""

import numpy as np

from edgequant.blocks import Floats
from edgequant.formats.costs import by_superblock
from edgequant.formats.format import Blocks, QuantFormat, register
from edgequant.formats.packing import pack_nibbles, unpack_nibbles
from edgequant.formats.search import HALF_LARGEST, Effort, Search, fan, to_half, turn
from edgequant.formats.symmetric import Codebook, SymmetricFit

BLOCK = np.dtype([("d", "<f2"), ("qs", "u1", 16)])  # 18 bytes
# Source: kvalues_iq4nl, ggml-common.h at llama.cpp 0c1e57098.
CODEBOOK = Codebook((-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113))
LARGEST = HALF_LARGEST * 113
SPANS = (-144, -137, -130, -123, -116, -109, -102, 95, 102, 109, 116, 123)
SEARCHES = {
    Effort.FAST: Search(fan((-137, -123, -109, 113))),
    Effort.DEFAULT: Search(fan(SPANS)),
    Effort.BEST: Search(fan((*range(-150, -90, 5), *range(90, 130, 5))), rounds=2),
}


def encode(weights: Floats, importance: Floats | None, effort: Effort) -> Blocks:
    """(rows, blocks, 32) float32 -> (rows, blocks) of BLOCK, by weighted squared error.

    Source of the costs: quantize_row_iq4_nl_impl, ggml-quants.c at llama.cpp 0c1e57098; the search
    is ours.
    """
    x = turn(weights.reshape(-1, 32), LARGEST)
    fit = SymmetricFit(x, by_superblock(x, importance, len(weights), 1, factor=2), CODEBOOK)
    d = to_half(fit.search(SEARCHES[effort]))
    fit.assign(d)
    quants = np.ascontiguousarray(CODEBOOK.codes(fit.levels).T)
    blocks = np.empty(weights.shape[:2], BLOCK)
    flat = blocks.reshape(-1)
    flat["d"] = d
    flat["qs"] = pack_nibbles(quants.reshape(-1, 2, 16))
    return blocks


def decode(blocks: Blocks, out: Floats) -> None:
    """(n,) of BLOCK into (n, 32) float32."""
    quants = np.empty((len(blocks), 2, 16), np.uint8)
    unpack_nibbles(blocks["qs"], quants)
    CODEBOOK.values.take(quants.reshape(-1, 32), out=out, mode="clip")
    out *= blocks["d"].astype(np.float32)[:, None]


IQ4_NL = register(QuantFormat("IQ4_NL", BLOCK, encode, decode))
