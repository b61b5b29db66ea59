"""Q2_K: superblocks of 256 weights in 16 sub-blocks of 16, x = (d sc) q - (dmin m), q in 0..3.

The scales `sc` and mins `m` have 4 bits each, a scale in the low half of its byte. In each half of
128 weights, bits 2k of byte l of `qs` hold weight l + 32k.
"""

import numpy as np

from edgequant.blocks import Floats
from edgequant.formats.affine import AffineFit
from edgequant.formats.costs import by_importance_and_size, by_size, mean_square, pooled
from edgequant.formats.format import Blocks, QuantFormat, register
from edgequant.formats.packing import FOUR, LOW, pack_pairs, unpack_pairs
from edgequant.formats.search import HALF_LARGEST, Effort, Search, fan, turn, turn_back
from edgequant.formats.superblock import CodeRange, affine_codes

# 84 bytes
BLOCK = np.dtype([("scales", "u1", 16), ("qs", "u1", 64), ("d", "<f2"), ("dmin", "<f2")])
TOP = 3
CODES = CodeRange(each=16, highest=15, aims=(17, 15.8, 15.2, 14.6, 13.5))
LARGEST = HALF_LARGEST * 15 * TOP
SEARCHES = {
    Effort.FAST: Search(fan((2.2, 2.8, 3.4), (-0.3, 0)), sweeps=1),
    Effort.DEFAULT: Search(fan((1.8, 2.2, 2.6, 3, 3.4, 3.8), (-0.45, -0.15, 0.15)), sweeps=1),
    Effort.BEST: Search(
        fan((1.8, 2.1, 2.4, 2.7, 3, 3.3, 3.6, 3.9), (-0.45, -0.25, -0.05, 0.15)),
        rounds=2,
        sweeps=3,
    ),
}


def encode(weights: Floats, importance: Floats | None, effort: Effort) -> Blocks:
    """(rows, blocks, 256) float32 -> (rows, blocks) of BLOCK, by weighted squared error.

    Source of the costs: quantize_row_q2_K_impl, ggml-quants.c at llama.cpp 0c1e57098, whose
    variance is half that of the other K-quants; the search is ours.
    """
    x = turn(weights.reshape(-1, 16), LARGEST)
    if importance is None:
        costs = by_size(x)
    else:
        costs = by_importance_and_size(x, pooled(mean_square(x), 16), importance, len(weights))
    fit = AffineFit(x, costs, TOP)
    search = SEARCHES[effort]
    codes = affine_codes(fit, *fit.search(search), CODES, sweeps=search.sweeps)
    blocks = np.empty(weights.shape[:2], BLOCK)
    flat = blocks.reshape(-1)
    flat["scales"] = codes.scales.astype(np.uint8) | (codes.mins.astype(np.uint8) << FOUR)
    _put_levels(flat, fit)
    flat["d"] = codes.d
    flat["dmin"] = codes.dmin
    return blocks


def _put_levels(blocks: Blocks, fit: AffineFit) -> None:
    blocks["qs"] = pack_pairs(turn_back(fit.levels).reshape(-1, 2, 4, 32)).reshape(-1, 64)


def _scales(blocks: Blocks) -> tuple[Floats, Floats]:
    """Return scale and min of each sub-block, both (n, 16)."""
    scales, mins = blocks["scales"] & LOW, blocks["scales"] >> FOUR
    return (
        blocks["d"].astype(np.float32)[:, None] * scales,
        blocks["dmin"].astype(np.float32)[:, None] * mins,
    )


def refit(blocks: Blocks, weights: Floats) -> None:
    """Put the levels nearest to (n, 256) weights into (n,) of BLOCK."""
    fit = AffineFit.of_levels(turn(weights.reshape(-1, 16), LARGEST), TOP)
    fit.assign(*(part.reshape(-1) for part in _scales(blocks)))
    _put_levels(blocks, fit)


def decode(blocks: Blocks, out: Floats) -> None:
    """(n,) of BLOCK into (n, 256) float32."""
    unpack_pairs(blocks["qs"].reshape(-1, 2, 32), out.reshape(-1, 2, 4, 32))
    shaped = out.reshape(-1, 16, 16)
    scales, mins = _scales(blocks)
    shaped *= scales[..., None]
    shaped -= mins[..., None]


Q2_K = register(QuantFormat("Q2_K", BLOCK, encode, decode, refit))
