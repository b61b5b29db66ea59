"""Q5_K: superblocks of 256 weights in 8 sub-blocks of 32, x = (d sc) q - (dmin m), q in 0..31.

As Q4_K, with the fifth bit of every quant apart: bit i of byte l of `qh` is that of weight l of
sub-block i.
"""

import numpy as np

from edgequant.blocks import Floats
from edgequant.formats.affine import AffineFit
from edgequant.formats.costs import by_importance_and_size, by_size, mean_square, pooled
from edgequant.formats.format import Blocks, QuantFormat, register
from edgequant.formats.packing import (
    FOUR,
    LOW,
    pack_nibbles,
    pack_scales,
    unpack_nibbles,
    unpack_scales,
)
from edgequant.formats.search import HALF_LARGEST, Effort, Search, fan, turn, turn_back
from edgequant.formats.superblock import CodeRange, affine_codes

BLOCK = np.dtype(
    [("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", 12), ("qh", "u1", 32), ("qs", "u1", 128)]
)  # 176 bytes
TOP = 31
CODES = CodeRange(each=8, highest=63, aims=(65, 63.3, 62.4, 61))
LARGEST = HALF_LARGEST * 63 * TOP
SEARCHES = {
    Effort.FAST: Search(fan((28.5, 29.7, 31), (-0.3, 0)), rounds=1),
    Effort.DEFAULT: Search(
        fan((27.8, 28.8, 29.8, 30.8, 31.8), (-0.45, -0.15, 0.15)), rounds=0, sweeps=1
    ),
    Effort.BEST: Search(
        fan((27.5, 28.2, 29, 29.7, 30.5, 31.2, 32), (-0.45, -0.25, -0.05, 0.15)),
        rounds=2,
        sweeps=2,
    ),
}


def encode(weights: Floats, importance: Floats | None, effort: Effort) -> Blocks:
    """(rows, blocks, 256) float32 -> (rows, blocks) of BLOCK, by weighted squared error.

    Source of the costs: quantize_row_q5_K_impl and, without importance, quantize_row_q5_K_ref,
    ggml-quants.c at llama.cpp 0c1e57098; the search is ours.
    """
    x = turn(weights.reshape(-1, 32), LARGEST)
    if importance is None:
        costs = by_size(x)
    else:
        variance = 2 * pooled(mean_square(x), 8)
        costs = by_importance_and_size(x, variance, importance, len(weights))
    fit = AffineFit(x, costs, TOP)
    search = SEARCHES[effort]
    codes = affine_codes(fit, *fit.search(search), CODES, sweeps=search.sweeps)
    blocks = np.empty(weights.shape[:2], BLOCK)
    flat = blocks.reshape(-1)
    flat["d"] = codes.d
    flat["dmin"] = codes.dmin
    flat["scales"] = pack_scales(codes.scales.astype(np.uint8), codes.mins.astype(np.uint8))
    _put_levels(flat, fit)
    return blocks


def _put_levels(blocks: Blocks, fit: AffineFit) -> None:
    quants = turn_back(fit.levels)
    blocks["qs"] = pack_nibbles(quants.reshape(-1, 4, 2, 32) & LOW).reshape(-1, 128)
    fifth = (quants >> FOUR).reshape(-1, 8, 32)
    blocks["qh"] = np.packbits(fifth, axis=1, bitorder="little")[:, 0]


def _scales(blocks: Blocks) -> tuple[Floats, Floats]:
    """Return scale and min of each sub-block, both (n, 8)."""
    scales, mins = unpack_scales(blocks["scales"])
    return (
        blocks["d"].astype(np.float32)[:, None] * scales,
        blocks["dmin"].astype(np.float32)[:, None] * mins,
    )


def refit(blocks: Blocks, weights: Floats) -> None:
    """Put the levels nearest to (n, 256) weights into (n,) of BLOCK."""
    fit = AffineFit.of_levels(turn(weights.reshape(-1, 32), LARGEST), TOP)
    fit.assign(*(part.reshape(-1) for part in _scales(blocks)))
    _put_levels(blocks, fit)


def decode(blocks: Blocks, out: Floats) -> None:
    """(n,) of BLOCK into (n, 256) float32."""
    quants = np.empty((len(blocks), 8, 32), np.uint8)
    unpack_nibbles(blocks["qs"].reshape(-1, 4, 32), quants.reshape(-1, 4, 2, 32))
    high = blocks["qh"]
    for i in range(8):
        quants[:, i] |= ((high >> np.uint8(i)) & np.uint8(1)) << FOUR
    shaped = out.reshape(-1, 8, 32)
    shaped[...] = quants
    scales, mins = _scales(blocks)
    shaped *= scales[..., None]
    shaped -= mins[..., None]


Q5_K = register(QuantFormat("Q5_K", BLOCK, encode, decode, refit))
