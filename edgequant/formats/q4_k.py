"""Q4_K: superblocks of 256 weights in 8 sub-blocks of 32, x = (d sc) q - (dmin m), q in 0..15.

The scales `sc` and mins `m` of the sub-blocks have 6 bits each.
"""

import numpy as np

from edgequant.blocks import Floats
from edgequant.formats.format import Blocks, QuantFormat, register
from edgequant.formats.packing import pack_nibbles, pack_scales, unpack_nibbles, unpack_scales
from edgequant.formats.search import inverse

# 144 bytes
BLOCK = np.dtype([("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", 12), ("qs", "u1", 128)])


def encode(weights: Floats, importance: Floats | None) -> Blocks:
    """(rows, blocks, 256) float32 -> (rows, blocks) of BLOCK."""
    shaped = weights.reshape(*weights.shape[:2], 8, 32)
    low = np.minimum(shaped.min(-1), 0)
    scales = (np.maximum(shaped.max(-1), 0) - low) / 15
    d = np.minimum(scales.max(-1) / 63, 65504).astype("<f2")
    dmin = np.minimum(-low.min(-1) / 63, 65504).astype("<f2")
    sc = np.clip(np.rint(scales * inverse(d.astype(np.float32))[..., None]), 0, 63)
    m = np.clip(np.rint(-low * inverse(dmin.astype(np.float32))[..., None]), 0, 63)
    fine = inverse(d.astype(np.float32)[..., None] * sc)[..., None]
    offset = (dmin.astype(np.float32)[..., None] * m)[..., None]
    quants = np.clip(np.rint((shaped + offset) * fine), 0, 15).astype(np.uint8)
    blocks = np.empty(d.shape, BLOCK)
    blocks["d"] = d
    blocks["dmin"] = dmin
    packed = pack_scales(sc.astype(np.uint8).reshape(-1, 8), m.astype(np.uint8).reshape(-1, 8))
    blocks["scales"] = packed.reshape(*d.shape, 12)
    blocks["qs"] = pack_nibbles(quants.reshape(*d.shape, 4, 2, 32)).reshape(*d.shape, 128)
    return blocks


def decode(blocks: Blocks, out: Floats) -> None:
    """(n,) of BLOCK into (n, 256) float32."""
    scales, mins = unpack_scales(blocks["scales"])
    unpack_nibbles(blocks["qs"].reshape(-1, 4, 32), out.reshape(-1, 4, 2, 32))
    shaped = out.reshape(-1, 8, 32)
    shaped *= (blocks["d"].astype(np.float32)[:, None] * scales)[..., None]
    shaped -= (blocks["dmin"].astype(np.float32)[:, None] * mins)[..., None]


Q4_K = register(QuantFormat("Q4_K", BLOCK, encode, decode))
