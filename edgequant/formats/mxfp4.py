"""MXFP4: 32 weights a block, x = 2^(e - 128) v, with v of 4 bits one of 0, ±1, 2, 3, 4, 6, 8, 12.

The OCP microscaling format: v is twice an E2M1 number, its sign the highest bit, and e an E8M0
exponent.
"""

import numpy as np
from numpy.typing import NDArray

from edgequant.blocks import Floats
from edgequant.formats.costs import by_superblock
from edgequant.formats.format import Blocks, QuantFormat, register
from edgequant.formats.packing import pack_nibbles, unpack_nibbles
from edgequant.formats.search import Effort, blend, turn
from edgequant.formats.symmetric import Codebook, SymmetricFit

BLOCK = np.dtype([("e", "u1"), ("qs", "u1", 16)])  # 17 bytes
SIZES = (0, 1, 2, 3, 4, 6, 8, 12)
CODEBOOK = Codebook((*(-v for v in SIZES[:0:-1]), *SIZES))
VALUES = np.array((*SIZES, 0, *(-v for v in SIZES[1:])), np.float32)
CODES = np.array((*range(15, 8, -1), *range(8)), np.uint8)  # of the places in the codebook
BIAS = 128
HIGHEST = 252  # above it ±12 would be infinite
LARGEST = 12 * 2.0 ** (HIGHEST - BIAS)
# Powers of two to try, from that under which the largest weight is 8 to 16.
STEPS = {Effort.FAST: (0,), Effort.DEFAULT: (0, 1, -1), Effort.BEST: (0, 1, -1, -2)}


def encode(weights: Floats, importance: Floats | None, effort: Effort) -> Blocks:
    """(rows, blocks, 32) float32 -> (rows, blocks) of BLOCK, by weighted squared error.

    ggml and the OCP's specification look at the largest weight alone, and at no importance.
    """
    x = turn(weights.reshape(-1, 32), LARGEST)
    _, power = np.frexp(np.maximum.reduce(np.abs(x), 0))
    exponent = np.clip(power - 4 + BIAS, 0, HIGHEST)
    np.ldexp(x, BIAS - exponent, out=x)  # now of a size that can be squared
    costs = np.ones_like(x)
    if importance is not None:
        costs = by_superblock(x, importance, len(weights), 1, factor=2)
    fit = SymmetricFit(x, costs, CODEBOOK)
    shift = _search(fit, exponent, STEPS[effort])
    fit.assign(np.ldexp(np.float32(1), shift))
    quants = CODES[CODEBOOK.codes(fit.levels)]
    blocks = np.empty(weights.shape[:2], BLOCK)
    flat = blocks.reshape(-1)
    flat["e"] = exponent + shift
    flat["qs"] = pack_nibbles(np.ascontiguousarray(quants.T).reshape(-1, 2, 16))
    return blocks


def _search(
    fit: SymmetricFit, exponent: NDArray[np.int32], steps: tuple[int, ...]
) -> NDArray[np.int32]:
    """Return the power of two, (n,), that loses least as a scale, with the sum in E8M0's range."""
    best = np.zeros_like(exponent)
    least = np.full(len(exponent), np.inf, np.float32)
    for step in steps:
        shift = np.clip(exponent + step, 0, HIGHEST) - exponent
        scale = np.ldexp(np.float32(1), shift)
        fit.assign(scale)
        q, r = fit.sums()
        lost = scale * (scale * q - 2 * r)
        better = lost < least
        best[better] = shift[better]
        blend(least, lost, better)
    return best


def decode(blocks: Blocks, out: Floats) -> None:
    """(n,) of BLOCK into (n, 32) float32."""
    quants = np.empty((len(blocks), 2, 16), np.uint8)
    unpack_nibbles(blocks["qs"], quants)
    VALUES.take(quants.reshape(-1, 32), out=out, mode="clip")
    out *= np.ldexp(np.float32(1), blocks["e"].astype(np.int32) - BIAS)[:, None]


MXFP4 = register(QuantFormat("MXFP4", BLOCK, encode, decode))
