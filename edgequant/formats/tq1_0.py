"""TQ1_0: 256 weights a block as TQ2_0's, x = d (q - 1) with q in 0..2, five of them in a byte.

A byte is a fraction of 256 in base three, rounded up, so that its digits appear in turn above the
eighth bit when it is multiplied by three, five times. Byte l of the 32 of `qs` holds weights
l + 32k, then of 16 weights 160 + l + 16k, and byte l of `qh`, of four digits, 240 + l + 4k.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgequant.blocks import Bytes, Floats
from edgequant.formats.format import Blocks, QuantFormat, register
from edgequant.formats.search import Effort
from edgequant.formats.tq2_0 import ternary

BLOCK = np.dtype([("qs", "u1", 48), ("qh", "u1", 4), ("d", "<f2")])  # 54 bytes
DIGITS = np.uint16(3**5)


def _parts(blocks: Blocks, weights: NDArray[Any]) -> Iterator[tuple[Bytes, NDArray[Any]]]:
    """Yield bytes (n, m) and the weights of their digits, (n, 4 or 5, m), as views."""
    yield blocks["qs"][:, :32], weights[:, :160].reshape(-1, 5, 32)
    yield blocks["qs"][:, 32:], weights[:, 160:240].reshape(-1, 5, 16)
    yield blocks["qh"], weights[:, 240:].reshape(-1, 4, 4)


def encode(weights: Floats, importance: Floats | None, effort: Effort) -> Blocks:
    """(rows, blocks, 256) float32 -> (rows, blocks) of BLOCK, by weighted squared error."""
    d, quants = ternary(weights, importance, effort)
    blocks = np.empty(weights.shape[:2], BLOCK)
    flat = blocks.reshape(-1)
    for packed, digits in _parts(flat, quants):
        number = np.zeros(packed.shape, np.uint16)
        for k in range(5):
            number *= np.uint16(3)
            if k < digits.shape[1]:
                number += digits[:, k]
        packed[...] = (number * np.uint16(256) + (DIGITS - np.uint16(1))) // DIGITS
    flat["d"] = d
    return blocks


def decode(blocks: Blocks, out: Floats) -> None:
    """(n,) of BLOCK into (n, 256) float32."""
    for packed, digits in _parts(blocks, out):
        rest = packed.astype(np.uint16)
        for k in range(digits.shape[1]):
            rest *= np.uint16(3)
            digits[:, k] = rest >> np.uint16(8)
            rest &= np.uint16(255)
    out -= 1
    out *= blocks["d"].astype(np.float32)[:, None]


TQ1_0 = register(QuantFormat("TQ1_0", BLOCK, encode, decode))
