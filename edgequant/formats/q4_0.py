"""Q4_0: 32 weights a block, x = d (q - 8) with q in 0..15."""

import numpy as np

from edgequant.blocks import Floats
from edgequant.formats.format import Blocks, QuantFormat, register
from edgequant.formats.packing import pack_nibbles, unpack_nibbles
from edgequant.formats.search import inverse

BLOCK = np.dtype([("d", "<f2"), ("qs", "u1", 16)])  # 18 bytes


def encode(weights: Floats, importance: Floats | None) -> Blocks:
    """(rows, blocks, 32) float32 -> (rows, blocks) of BLOCK."""
    largest = np.take_along_axis(weights, np.abs(weights).argmax(-1)[..., None], -1)
    d = np.clip(largest[..., 0] / -8, -65504, 65504).astype("<f2")
    scaled = weights * inverse(d.astype(np.float32))[..., None]
    quants = np.clip(np.rint(scaled) + 8, 0, 15).astype(np.uint8)
    blocks = np.empty(d.shape, BLOCK)
    blocks["d"] = d
    blocks["qs"] = pack_nibbles(quants.reshape(*quants.shape[:-1], 2, 16))
    return blocks


def decode(blocks: Blocks, out: Floats) -> None:
    """(n,) of BLOCK into (n, 32) float32."""
    unpack_nibbles(blocks["qs"], out.reshape(-1, 2, 16))
    out -= 8
    out *= blocks["d"].astype(np.float32)[:, None]


Q4_0 = register(QuantFormat("Q4_0", BLOCK, encode, decode))
