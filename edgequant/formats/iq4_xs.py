"""IQ4_XS: superblocks of 256 weights in 8 sub-blocks of 32, x = (d (sc - 32)) CODEBOOK[q].

The codebook is IQ4_NL's and the scales `sc` have 6 bits: the low nibbles of sub-blocks 2i and
2i + 1 in byte i of `scales_l`, the two high bits of sub-block i at bits 2i of `scales_h`.
"""

import numpy as np

from edgequant.blocks import Floats
from edgequant.formats.costs import by_superblock
from edgequant.formats.format import Blocks, QuantFormat, register
from edgequant.formats.iq4_nl import CODEBOOK
from edgequant.formats.packing import (
    FOUR,
    LOW,
    pack_nibbles,
    pack_pairs,
    unpack_nibbles,
    unpack_pairs,
)
from edgequant.formats.search import HALF_LARGEST, Effort, Search, fan, turn
from edgequant.formats.signed_codes import SignedRange, signed_codes
from edgequant.formats.symmetric import SymmetricFit

# 136 bytes
BLOCK = np.dtype(
    [("d", "<f2"), ("scales_h", "u1", 2), ("scales_l", "u1", 4), ("qs", "u1", (8, 16))]
)
CODES = SignedRange(each=8, low=-32, high=31, aims=(-33, -32, -31, -29.5, 30, 31.5))
LARGEST = HALF_LARGEST * 32 * 113
SPANS = (-144, -137, -130, -123, -116, -109, -102, 95, 102, 109, 116, 123)
SEARCHES = {
    Effort.FAST: Search(fan((-137, -123, -109, 113))),
    Effort.DEFAULT: Search(fan(SPANS), rounds=0, sweeps=1),
    Effort.BEST: Search(fan((*range(-150, -90, 5), *range(90, 130, 5))), rounds=2, sweeps=2),
}


def encode(weights: Floats, importance: Floats | None, effort: Effort) -> Blocks:
    """(rows, blocks, 256) float32 -> (rows, blocks) of BLOCK, by weighted squared error.

    Source of the costs: quantize_row_iq4_nl_impl, ggml-quants.c at llama.cpp 0c1e57098; the search
    is ours.
    """
    x = turn(weights.reshape(-1, 32), LARGEST)
    fit = SymmetricFit(x, by_superblock(x, importance, len(weights), 8, factor=2), CODEBOOK)
    search = SEARCHES[effort]
    codes = signed_codes(fit, fit.nearest(fit.search(search)), CODES, sweeps=search.sweeps)
    scales = (codes.scales - CODES.low).astype(np.uint8)
    blocks = np.empty(weights.shape[:2], BLOCK)
    flat = blocks.reshape(-1)
    flat["d"] = codes.d
    flat["scales_h"] = pack_pairs((scales >> FOUR).reshape(-1, 2, 4).swapaxes(1, 2))
    flat["scales_l"] = pack_nibbles((scales & LOW).reshape(-1, 4, 2).swapaxes(1, 2))
    _put_levels(flat, fit)
    return blocks


def _put_levels(blocks: Blocks, fit: SymmetricFit) -> None:
    quants = np.ascontiguousarray(CODEBOOK.codes(fit.levels).T)
    blocks["qs"] = pack_nibbles(quants.reshape(-1, 8, 2, 16))


def _scales(blocks: Blocks) -> Floats:
    """Return the scale of each sub-block, (n, 8)."""
    codes = np.empty((len(blocks), 8), np.uint8)
    unpack_pairs(blocks["scales_h"], codes.reshape(-1, 2, 4).swapaxes(1, 2))
    codes <<= FOUR
    low = np.empty((len(blocks), 4, 2), np.uint8)
    unpack_nibbles(blocks["scales_l"], low.swapaxes(1, 2))
    codes |= low.reshape(-1, 8)
    scales = codes.astype(np.float32)
    scales += CODES.low
    scales *= blocks["d"].astype(np.float32)[:, None]
    return scales


def refit(blocks: Blocks, weights: Floats) -> None:
    """Put the levels nearest to (n, 256) weights into (n,) of BLOCK."""
    fit = SymmetricFit.of_levels(turn(weights.reshape(-1, 32), LARGEST), CODEBOOK)
    fit.assign(_scales(blocks).reshape(-1))
    _put_levels(blocks, fit)


def decode(blocks: Blocks, out: Floats) -> None:
    """(n,) of BLOCK into (n, 256) float32."""
    quants = np.empty((len(blocks), 8, 2, 16), np.uint8)
    unpack_nibbles(blocks["qs"], quants)
    shaped = out.reshape(-1, 8, 32)
    CODEBOOK.values.take(quants.reshape(shaped.shape), out=shaped, mode="clip")
    shaped *= _scales(blocks)[..., None]


IQ4_XS = register(QuantFormat("IQ4_XS", BLOCK, encode, decode, refit))
