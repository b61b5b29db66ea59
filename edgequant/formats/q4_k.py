"""Q4_K: superblocks of 256 weights in 8 sub-blocks of 32, x = (d sc) q - (dmin m), q in 0..15.

The scales `sc` and mins `m` of the sub-blocks have 6 bits each.
"""

import numpy as np

from edgequant.blocks import Floats
from edgequant.formats.affine import AffineFit
from edgequant.formats.costs import by_importance_and_size, by_size, mean_square, pooled
from edgequant.formats.format import Blocks, QuantFormat, register
from edgequant.formats.packing import pack_nibbles, pack_scales, unpack_nibbles, unpack_scales
from edgequant.formats.search import HALF_LARGEST, Effort, Search, fan, turn, turn_back
from edgequant.formats.superblock import CodeRange, affine_codes

# 144 bytes
BLOCK = np.dtype([("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", 12), ("qs", "u1", 128)])
TOP = 15
CODES = CodeRange(each=8, highest=63, aims=(65, 63.3, 62.4, 61))
LARGEST = HALF_LARGEST * 63 * TOP
SEARCHES = {
    Effort.FAST: Search(fan((13.3, 14.5, 15.6), (-0.3, 0)), rounds=1),
    Effort.DEFAULT: Search(
        fan((12.9, 13.7, 14.5, 15.3, 16.1), (-0.45, -0.15, 0.15)), rounds=0, sweeps=1
    ),
    Effort.BEST: Search(
        fan((12.5, 13, 13.5, 14, 14.5, 15, 15.5, 16), (-0.45, -0.25, -0.05, 0.15)),
        rounds=2,
        sweeps=2,
    ),
}


def encode(weights: Floats, importance: Floats | None, effort: Effort) -> Blocks:
    """(rows, blocks, 256) float32 -> (rows, blocks) of BLOCK, by weighted squared error.

    Source of the costs: quantize_row_q4_K_impl and, without importance, quantize_row_q4_K_ref,
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
    blocks["qs"] = pack_nibbles(quants.reshape(-1, 4, 2, 32)).reshape(-1, 128)


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
    unpack_nibbles(blocks["qs"].reshape(-1, 4, 32), out.reshape(-1, 4, 2, 32))
    shaped = out.reshape(-1, 8, 32)
    scales, mins = _scales(blocks)
    shaped *= scales[..., None]
    shaped -= mins[..., None]


Q4_K = register(QuantFormat("Q4_K", BLOCK, encode, decode, refit))
