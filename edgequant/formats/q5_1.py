"""Q5_1: 32 weights a block, x = d q + m with q in 0..31."""

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

BLOCK = np.dtype([("d", "<f2"), ("m", "<f2"), ("qh", "u1", 4), ("qs", "u1", 16)])  # 24 bytes


def encode(weights: Floats, importance: Floats | None) -> Blocks:
    """(rows, blocks, 32) float32 -> (rows, blocks) of BLOCK."""
    m = np.clip(weights.min(-1), -65504, 65504).astype("<f2")
    d = np.clip((weights.max(-1) - m) / 31, 0, 65504).astype("<f2")
    scaled = (weights - m[..., None]) * inverse(d.astype(np.float32))[..., None]
    quants = np.clip(np.rint(scaled), 0, 31).astype(np.uint8)
    blocks = np.empty(d.shape, BLOCK)
    blocks["d"] = d
    blocks["m"] = m
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
    out *= blocks["d"].astype(np.float32)[:, None]
    out += blocks["m"].astype(np.float32)[:, None]


Q5_1 = register(QuantFormat("Q5_1", BLOCK, encode, decode))
