"""Q5_K: superblocks of 256 weights in 8 sub-blocks of 32, x = (d sc) q - (dmin m), q in 0..31.

As Q4_K, with the fifth bit of every quant apart: bit i of byte l of `qh` is that of weight l of
sub-block i.
"""

import numpy as np

from edgequant.blocks import Floats
from edgequant.formats.format import Blocks, QuantFormat, register
from edgequant.formats.packing import (
    FOUR,
    LOW,
    pack_nibbles,
    pack_scales,
    unpack_nibbles,
    unpack_scales,
)
from edgequant.formats.search import inverse

BLOCK = np.dtype(
    [("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", 12), ("qh", "u1", 32), ("qs", "u1", 128)]
)  # 176 bytes


def encode(weights: Floats, importance: Floats | None) -> Blocks:
    """(rows, blocks, 256) float32 -> (rows, blocks) of BLOCK."""
    shaped = weights.reshape(*weights.shape[:2], 8, 32)
    low = np.minimum(shaped.min(-1), 0)
    scales = (np.maximum(shaped.max(-1), 0) - low) / 31
    d = np.minimum(scales.max(-1) / 63, 65504).astype("<f2")
    dmin = np.minimum(-low.min(-1) / 63, 65504).astype("<f2")
    sc = np.clip(np.rint(scales * inverse(d.astype(np.float32))[..., None]), 0, 63)
    m = np.clip(np.rint(-low * inverse(dmin.astype(np.float32))[..., None]), 0, 63)
    fine = inverse(d.astype(np.float32)[..., None] * sc)[..., None]
    offset = (dmin.astype(np.float32)[..., None] * m)[..., None]
    quants = np.clip(np.rint((shaped + offset) * fine), 0, 31).astype(np.uint8)
    blocks = np.empty(d.shape, BLOCK)
    blocks["d"] = d
    blocks["dmin"] = dmin
    packed = pack_scales(sc.astype(np.uint8).reshape(-1, 8), m.astype(np.uint8).reshape(-1, 8))
    blocks["scales"] = packed.reshape(*d.shape, 12)
    blocks["qh"] = np.packbits(quants >> FOUR, axis=-2, bitorder="little")[..., 0, :]
    blocks["qs"] = pack_nibbles(quants.reshape(*d.shape, 4, 2, 32) & LOW).reshape(*d.shape, 128)
    return blocks


def decode(blocks: Blocks, out: Floats) -> None:
    """(n,) of BLOCK into (n, 256) float32."""
    scales, mins = unpack_scales(blocks["scales"])
    quants = np.empty((len(blocks), 8, 32), np.uint8)
    unpack_nibbles(blocks["qs"].reshape(-1, 4, 32), quants.reshape(-1, 4, 2, 32))
    high = blocks["qh"]
    for i in range(8):
        quants[:, i] |= ((high >> np.uint8(i)) & np.uint8(1)) << FOUR
    shaped = out.reshape(-1, 8, 32)
    shaped[...] = quants
    shaped *= (blocks["d"].astype(np.float32)[:, None] * scales)[..., None]
    shaped -= (blocks["dmin"].astype(np.float32)[:, None] * mins)[..., None]


Q5_K = register(QuantFormat("Q5_K", BLOCK, encode, decode))
