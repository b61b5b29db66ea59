"""Q3_K: superblocks of 256 weights in 16 sub-blocks of 16, x = (d (sc - 32)) (q - 4), q in 0..7.

The scales `sc` have 6 bits. In each half of 128 weights, bits 2k of byte l of `qs` hold the two low
bits of weight l + 32k; bit i of byte l of `hmask` is the third of weight l + 32i of all 256.
"""

import numpy as np

from edgequant.blocks import Bytes, Floats
from edgequant.formats.costs import by_superblock
from edgequant.formats.format import Blocks, QuantFormat, register
from edgequant.formats.packing import FOUR, LOW, pack_nibbles, pack_pairs, unpack_pairs
from edgequant.formats.search import HALF_LARGEST, Effort, Search, fan, turn, turn_back
from edgequant.formats.signed_codes import SignedRange, signed_codes
from edgequant.formats.symmetric import SymmetricFit, Whole

# 110 bytes
BLOCK = np.dtype([("hmask", "u1", 32), ("qs", "u1", 64), ("scales", "u1", 12), ("d", "<f2")])
LEVELS = Whole(-4, 3)
CODES = SignedRange(each=16, low=-32, high=31, aims=(-33, -32, -31, -29.5, 30, 31.5))
LARGEST = HALF_LARGEST * 32 * 4
SEARCHES = {
    Effort.FAST: Search(fan((-4.8, -4.2, -3.6, -3, 3, 3.6))),
    Effort.DEFAULT: Search(
        fan((-5.2, -4.8, -4.4, -4, -3.6, -3.2, -2.8, 2.6, 3, 3.4, 3.8, 4.2)), rounds=0, sweeps=1
    ),
    Effort.BEST: Search(
        fan([*(-6 + i / 5 for i in range(18)), *(2.4 + i / 5 for i in range(11))]),
        rounds=2,
        sweeps=2,
    ),
}
TWO = np.uint8(2)
THREE = np.uint8(3)


def encode(weights: Floats, importance: Floats | None, effort: Effort) -> Blocks:
    """(rows, blocks, 256) float32 -> (rows, blocks) of BLOCK, by weighted squared error.

    Source of the costs: quantize_row_q3_K_impl, ggml-quants.c at llama.cpp 0c1e57098, but for the
    variance: it takes 2, under which its own search leaves 0.3% to gain in the error weighted with
    importance. With 3 that falls by another 0.6%, and the KL divergence of Q3_K_M files stays the
    same (0.97 of llama.cpp's on books-54m, 1.01 on books-6m); above 4 it tends to rise.
    """
    x = turn(weights.reshape(-1, 16), LARGEST)
    fit = SymmetricFit(x, by_superblock(x, importance, len(weights), 16, factor=3), LEVELS)
    search = SEARCHES[effort]
    codes = signed_codes(fit, fit.nearest(fit.search(search)), CODES, sweeps=search.sweeps)
    blocks = np.empty(weights.shape[:2], BLOCK)
    flat = blocks.reshape(-1)
    _put_levels(flat, fit)
    flat["scales"] = _pack_scales((codes.scales - CODES.low).astype(np.uint8))
    flat["d"] = codes.d
    return blocks


def _put_levels(blocks: Blocks, fit: SymmetricFit) -> None:
    fit.levels -= LEVELS.low
    quants = turn_back(fit.levels).reshape(-1, 8, 32)
    blocks["hmask"] = np.packbits(quants >> TWO, axis=1, bitorder="little")[:, 0]
    blocks["qs"] = pack_pairs((quants & THREE).reshape(-1, 2, 4, 32)).reshape(-1, 64)


def _scales(blocks: Blocks) -> Floats:
    """Return the scale of each sub-block, (n, 16)."""
    scales = _unpack_scales(blocks["scales"]).astype(np.float32)
    scales += CODES.low
    scales *= blocks["d"].astype(np.float32)[:, None]
    return scales


def refit(blocks: Blocks, weights: Floats) -> None:
    """Put the levels nearest to (n, 256) weights into (n,) of BLOCK."""
    fit = SymmetricFit.of_levels(turn(weights.reshape(-1, 16), LARGEST), LEVELS)
    fit.assign(_scales(blocks).reshape(-1))
    _put_levels(blocks, fit)


def _pack_scales(scales: Bytes) -> Bytes:
    """Pack 16 scales of 6 bits: (n, 16) of 0..63 -> (n, 12).

    Byte i holds the low nibbles of scales i and i + 8, and byte 8 + i the two high bits of scales
    i, i + 4, i + 8 and i + 12.
    """
    packed = np.empty((len(scales), 12), np.uint8)
    packed[:, :8] = pack_nibbles((scales & LOW).reshape(-1, 2, 8))
    packed[:, 8:] = pack_pairs((scales >> FOUR).reshape(-1, 4, 4))
    return packed


def _unpack_scales(packed: Bytes) -> Bytes:
    """Return the scales, (n, 12) -> (n, 16) of 0..63; the inverse of `_pack_scales`."""
    scales = np.empty((len(packed), 16), np.uint8)
    unpack_pairs(packed[:, 8:], scales.reshape(-1, 4, 4))
    scales <<= FOUR
    scales[:, :8] |= packed[:, :8] & LOW
    scales[:, 8:] |= packed[:, :8] >> FOUR
    return scales


def decode(blocks: Blocks, out: Floats) -> None:
    """(n,) of BLOCK into (n, 256) float32."""
    quants = np.unpackbits(blocks["hmask"][:, None], axis=1, count=8, bitorder="little")
    quants <<= TWO
    low = np.empty((len(blocks), 2, 4, 32), np.uint8)
    unpack_pairs(blocks["qs"].reshape(-1, 2, 32), low)
    quants |= low.reshape(quants.shape)
    shaped = out.reshape(-1, 16, 16)
    shaped[...] = quants.reshape(shaped.shape)
    shaped += LEVELS.low
    shaped *= _scales(blocks)[..., None]


Q3_K = register(QuantFormat("Q3_K", BLOCK, encode, decode, refit))
