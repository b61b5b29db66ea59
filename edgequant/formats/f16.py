"""F16: IEEE half precision, rounded to nearest even."""

import numpy as np

from edgequant.blocks import Floats
from edgequant.formats.format import Blocks, QuantFormat, register
from edgequant.formats.search import Effort

BLOCK = np.dtype("<f2")
LARGEST = np.float32(65504)
NOT_FINITE = 0xF800  # bits of infinity without the sign, one place up
SIGN_AND_NUMBER = np.int32(-0x70002000)  # 0x8FFFE000: a sign, and 15 bits from the 28th down
UNIT = np.float32(2.0**112)


def encode(weights: Floats, importance: Floats | None, effort: Effort) -> Blocks:  # noqa: ARG001 -- no choice to weigh
    """(rows, blocks, 1) float32 -> (rows, blocks); beyond ±65504 the largest number is kept.

    llama.cpp makes infinities of those, and a model with an infinity answers nothing but NaN.
    """
    return np.clip(weights[..., 0], -LARGEST, LARGEST).astype(BLOCK)


def decode(blocks: Blocks, out: Floats) -> None:
    """(n,) into (n, 1) float32, exactly.

    Shifted into place, the bits are the number over 2^112, subnormal ones too: less than half the
    time of NumPy's own cast where it has no instruction for it. Not so infinities and NaN, which
    have the highest exponent.
    """
    magnitudes = blocks.view(np.uint16) << np.uint16(1)
    if np.maximum.reduce(magnitudes, initial=0) >= NOT_FINITE:
        out[:, 0] = blocks
        return
    bits = out[:, 0].view(np.int32)
    np.copyto(bits, blocks.view(np.int16))  # the sign fills the upper half
    bits <<= np.int32(13)
    bits &= SIGN_AND_NUMBER
    out *= UNIT


F16 = register(QuantFormat("F16", BLOCK, encode, decode))
