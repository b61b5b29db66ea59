"""Q5_0: 32 weights a block, x = d (q - 16) with q in 0..31."""

import numpy as np

from edgequant.blocks import Floats
from edgequant.formats.format import Blocks, QuantFormat, register
from edgequant.formats.packing import (
    FOUR,
    LOW,
    pack_bits,
    pack_nibbles,
    unpack_bits,
    unpack_nibbles,
)
from edgequant.formats.search import inverse

BLOCK = np.dtype([("d", "<f2"), ("qh", "u1", 4), ("qs", "u1", 16)])  # 22 bytes


def encode(weights: Floats, importance: Floats | None) -> Blocks:
    """(rows, blocks, 32) float32 -> (rows, blocks) of BLOCK."""
    largest = np.take_along_axis(weights, np.abs(weights).argmax(-1)[..., None], -1)
    d = np.clip(largest[..., 0] / -16, -65504, 65504).astype("<f2")
    scaled = weights * inverse(d.astype(np.float32))[..., None]
    quants = np.clip(np.rint(scaled) + 16, 0, 31).astype(np.uint8)
    blocks = np.empty(d.shape, BLOCK)
    blocks["d"] = d
    blocks["qs"] = pack_nibbles(quants.reshape(*quants.shape[:-1], 2, 16) & LOW)
    blocks["qh"] = pack_bits(quants >> FOUR)
    return blocks


def decode(blocks: Blocks, out: Floats) -> None:
    """(n,) of BLOCK into (n, 32) float32."""
    quants = unpack_bits(blocks["qh"])
    quants <<= FOUR
    low = np.empty((len(blocks), 2, 16), np.uint8)
    unpack_nibbles(blocks["qs"], low)
    quants |= low.reshape(-1, 32)
    out[...] = quants
    out -= 16
    out *= blocks["d"].astype(np.float32)[:, None]


Q5_0 = register(QuantFormat("Q5_0", BLOCK, encode, decode))
