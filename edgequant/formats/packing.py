"""How small integers share bytes: nibbles, fifth bits, and the K-quants' 6-bit scales and mins.

Every pair here is exact and inverse to each other. The code knows integers only; what they scale is
the formats' business.
"""

import numpy as np

from edgequant.blocks import Bytes, Floats

LOW = np.uint8(15)
FOUR = np.uint8(4)


def pack_nibbles(quants: Bytes) -> Bytes:
    """Put pairs into bytes: (…, 2, n) of 0..15, the first of the pair in the low half -> (…, n)."""
    packed: Bytes = quants[..., 1, :] << FOUR
    packed |= quants[..., 0, :]
    return packed


def unpack_nibbles(packed: Bytes, out: Bytes | Floats) -> None:
    """Take pairs apart: (…, n) bytes into `out` (…, 2, n), integers or floats."""
    out[..., 0, :] = packed & LOW
    out[..., 1, :] = packed >> FOUR


def pack_scales(scales: Bytes, mins: Bytes) -> Bytes:
    """Pack 8 scales and 8 mins of 6 bits: two (n, 8) of 0..63 -> (n, 12).

    Bytes 0..3 and 4..7 hold the first four scales and mins; their two top bits, and the nibbles of
    bytes 8..11, hold the last four.

    Source: get_scale_min_k4, ggml-quants.c at llama.cpp 0c1e57098.
    """
    packed = np.empty((len(scales), 3, 4), np.uint8)
    packed[:, 0] = scales[:, :4] | ((scales[:, 4:] >> 4) << 6)
    packed[:, 1] = mins[:, :4] | ((mins[:, 4:] >> 4) << 6)
    packed[:, 2] = (scales[:, 4:] & 15) | ((mins[:, 4:] & 15) << 4)
    return packed.reshape(-1, 12)


def unpack_scales(packed: Bytes) -> tuple[Bytes, Bytes]:
    """Return the scales and the mins, both (n, 8) of 0..63; the inverse of `pack_scales`."""
    parts = packed.reshape(-1, 3, 4)
    scales = np.empty((len(parts), 8), np.uint8)
    mins = np.empty((len(parts), 8), np.uint8)
    scales[:, :4] = parts[:, 0] & 63
    mins[:, :4] = parts[:, 1] & 63
    scales[:, 4:] = (parts[:, 2] & 15) | ((parts[:, 0] >> 6) << 4)
    mins[:, 4:] = (parts[:, 2] >> 4) | ((parts[:, 1] >> 6) << 4)
    return scales, mins


def pack_bits(bits: Bytes) -> Bytes:
    """Pack flags: (n, 32) of 0 or 1 -> (n, 4), flag j at bit j of the little-endian word."""
    return np.packbits(bits, axis=-1, bitorder="little")


def unpack_bits(packed: Bytes) -> Bytes:
    """Return the flags, (n, 4) -> (n, 32) of 0 or 1; the inverse of `pack_bits`."""
    return np.unpackbits(packed, axis=-1, bitorder="little")


def pack_pairs(quants: Bytes) -> Bytes:
    """Put fours into bytes: (…, 4, n) of 0..3, the first in the lowest bits -> (…, n)."""
    packed: Bytes = quants[..., 0, :].copy()
    for k in range(1, 4):
        packed |= quants[..., k, :] << np.uint8(2 * k)
    return packed


def unpack_pairs(packed: Bytes, out: Bytes | Floats) -> None:
    """Take fours apart: (…, n) bytes into `out` (…, 4, n), integers or floats."""
    for k in range(4):
        out[..., k, :] = (packed >> np.uint8(2 * k)) & np.uint8(3)
