"""Q6_K: superblocks of 256 weights in 16 sub-blocks of 16, x = (d sc) (q - 32), q in 0..63.

The scales `sc` are int8. In each half of 128 weights, byte l of `ql` holds the low nibbles of
weights l and l + 64, and bits 2k of byte l of `qh` the two high bits of weight l + 32k.
"""

import numpy as np

from edgequant.blocks import Floats
from edgequant.formats.costs import by_importance, by_superblock
from edgequant.formats.format import Blocks, QuantFormat, register
from edgequant.formats.packing import FOUR, LOW, pack_nibbles, unpack_nibbles
from edgequant.formats.search import HALF_LARGEST, Effort, Search, fan, turn, turn_back
from edgequant.formats.signed_codes import SignedRange, signed_codes
from edgequant.formats.symmetric import SymmetricFit, Whole

# 210 bytes
BLOCK = np.dtype([("ql", "u1", 128), ("qh", "u1", 64), ("scales", "i1", 16), ("d", "<f2")])
LEVELS = Whole(-32, 31)
LARGEST = HALF_LARGEST * 128 * 32
CODES = SignedRange(each=16, low=-128, high=127, aims=(-127, -126))
# Whole spans: the largest weight, which costs most, is then on a level. A start more gains twice
# what a sweep does in the same time, until there are many.
SEARCHES = {
    Effort.FAST: Search(fan(range(-32, -27)), rounds=0),
    Effort.DEFAULT: Search(fan(range(-32, -24)), rounds=0),
    Effort.BEST: Search(fan([-33 + i / 2 for i in range(20)]), rounds=0, sweeps=2),
}


def encode(weights: Floats, importance: Floats | None, effort: Effort) -> Blocks:
    """(rows, blocks, 256) float32 -> (rows, blocks) of BLOCK, by weighted squared error.

    The cost is the importance alone, as in quantize_row_q6_K_impl, ggml-quants.c at llama.cpp
    0c1e57098.
    """
    x = turn(weights.reshape(-1, 16), LARGEST)
    if importance is None:
        costs = by_superblock(x, None, len(weights), 16, factor=1)
    else:
        costs = by_importance(importance, len(weights), 16)
    fit = SymmetricFit(x, costs, LEVELS)
    search = SEARCHES[effort]
    codes = signed_codes(fit, fit.best_start(search), CODES, sweeps=search.sweeps)
    blocks = np.empty(weights.shape[:2], BLOCK)
    flat = blocks.reshape(-1)
    _put_levels(flat, fit)
    flat["scales"] = codes.scales
    flat["d"] = codes.d
    return blocks


def _put_levels(blocks: Blocks, fit: SymmetricFit) -> None:
    fit.levels -= LEVELS.low
    quants = turn_back(fit.levels).reshape(-1, 2, 4, 32)
    blocks["ql"] = pack_nibbles((quants & LOW).reshape(-1, 2, 2, 64)).reshape(-1, 128)
    high = quants >> FOUR
    high[:, :, 0] |= high[:, :, 1] << np.uint8(2)
    high[:, :, 0] |= high[:, :, 2] << FOUR
    high[:, :, 0] |= high[:, :, 3] << np.uint8(6)
    blocks["qh"] = high[:, :, 0].reshape(-1, 64)


def _scales(blocks: Blocks) -> Floats:
    """Return the scale of each sub-block, (n, 16)."""
    scales: Floats = blocks["d"].astype(np.float32)[:, None] * blocks["scales"]
    return scales


def refit(blocks: Blocks, weights: Floats) -> None:
    """Put the levels nearest to (n, 256) weights into (n,) of BLOCK."""
    fit = SymmetricFit.of_levels(turn(weights.reshape(-1, 16), LARGEST), LEVELS)
    fit.assign(_scales(blocks).reshape(-1))
    _put_levels(blocks, fit)


def decode(blocks: Blocks, out: Floats) -> None:
    """(n,) of BLOCK into (n, 256) float32."""
    quants = np.empty((len(blocks), 2, 4, 32), np.uint8)
    low, high = (np.ascontiguousarray(blocks[part]) for part in ("ql", "qh"))
    unpack_nibbles(low.reshape(-1, 2, 64), quants.reshape(-1, 2, 2, 64))
    for k in range(4):
        bits = high >> np.uint8(2 * k)
        bits &= np.uint8(3)
        bits <<= FOUR
        quants[:, :, k] |= bits.reshape(-1, 2, 32)
    quants -= np.uint8(32)
    shaped = out.reshape(-1, 16, 16)
    shaped[...] = quants.view(np.int8).reshape(shaped.shape)
    shaped *= _scales(blocks)[..., None]


Q6_K = register(QuantFormat("Q6_K", BLOCK, encode, decode, refit))
