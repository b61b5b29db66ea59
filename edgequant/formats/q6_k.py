"""Q6_K: superblocks of 256 weights in 16 sub-blocks of 16, x = (d sc) (q - 32), q in 0..63.

The scales `sc` are int8. In each half of 128 weights, byte l of `ql` holds the low nibbles of
weights l and l + 64, and bits 2k of byte l of `qh` the two high bits of weight l + 32k.
"""

import numpy as np

from edgequant.blocks import Floats
from edgequant.formats.format import Blocks, QuantFormat, register
from edgequant.formats.packing import FOUR, LOW, pack_nibbles, unpack_nibbles
from edgequant.formats.search import inverse

BLOCK = np.dtype(
    [("ql", "u1", 128), ("qh", "u1", 64), ("scales", "i1", 16), ("d", "<f2")]
)  # 210 bytes


def encode(weights: Floats, importance: Floats | None) -> Blocks:
    """(rows, blocks, 256) float32 -> (rows, blocks) of BLOCK."""
    shaped = weights.reshape(*weights.shape[:2], 16, 16)
    scales = np.abs(shaped).max(-1) / 31
    d = np.minimum(scales.max(-1) / 127, 65504).astype("<f2")
    sc = np.clip(np.rint(scales * inverse(d.astype(np.float32))[..., None]), -128, 127)
    fine = inverse(d.astype(np.float32)[..., None] * sc)[..., None]
    quants = (np.clip(np.rint(shaped * fine), -32, 31) + 32).astype(np.uint8)
    halves = quants.reshape(*d.shape, 2, 4, 32)
    blocks = np.empty(d.shape, BLOCK)
    low = (halves & LOW).reshape(*d.shape, 2, 2, 64)
    blocks["ql"] = pack_nibbles(low).reshape(*d.shape, 128)
    high = halves >> FOUR
    joined = high[..., 0, :] | (high[..., 1, :] << 2)
    joined |= (high[..., 2, :] << 4) | (high[..., 3, :] << 6)
    blocks["qh"] = joined.reshape(*d.shape, 64)
    blocks["scales"] = sc
    blocks["d"] = d
    return blocks


def decode(blocks: Blocks, out: Floats) -> None:
    """(n,) of BLOCK into (n, 256) float32."""
    quants = np.empty((len(blocks), 2, 4, 32), np.uint8)
    unpack_nibbles(blocks["ql"].reshape(-1, 2, 64), quants.reshape(-1, 2, 2, 64))
    high = blocks["qh"].reshape(-1, 2, 32)
    for k in range(4):
        quants[:, :, k] |= ((high >> np.uint8(2 * k)) & np.uint8(3)) << FOUR
    shaped = out.reshape(-1, 16, 16)
    shaped[...] = quants.reshape(shaped.shape)
    shaped -= 32
    shaped *= (blocks["d"].astype(np.float32)[:, None] * blocks["scales"])[..., None]


Q6_K = register(QuantFormat("Q6_K", BLOCK, encode, decode))
