"""Q8_0: 32 weights a block, x = d q with q in -127..127."""

import numpy as np

from edgequant.blocks import Floats
from edgequant.formats.format import Blocks, QuantFormat, register
from edgequant.formats.search import HALF_LARGEST, Effort, inverse, to_half

BLOCK = np.dtype([("d", "<f2"), ("qs", "i1", 32)])  # 34 bytes
TOP = 127
LARGEST = np.float32(HALF_LARGEST * TOP)
SIGN = np.uint32(1 << 31)
# Adding the float before 1/2 and cutting rounds halves away from zero, and what is next to them
# towards it, as C's roundf does.
ALMOST_HALF = np.nextafter(np.float32(0.5), np.float32(0)).view(np.uint32)


def encode(weights: Floats, importance: Floats | None, effort: Effort) -> Blocks:  # noqa: ARG001 -- as ggml's
    """(rows, blocks, 32) float32 -> (rows, blocks) of BLOCK, the same bytes as ggml.

    The largest magnitude becomes ±127 and the others round to nearest, halves away from zero;
    importance is ignored. Differs: a scale beyond float16 is held at 65504, not infinite.

    Source: quantize_row_q8_0_ref, ggml-quants.c at llama.cpp 0c1e57098.
    """
    x = np.ascontiguousarray(weights.reshape(-1, 32).T)
    largest = np.abs(np.maximum(np.maximum.reduce(x, 0), -np.minimum.reduce(x, 0)))  # of -0 too
    if largest.max(initial=0) > LARGEST:
        np.clip(x, -LARGEST, LARGEST, out=x)
        np.minimum(largest, LARGEST, out=largest)
    d = largest / np.float32(TOP)
    x *= inverse(d)
    halves = x.view(np.uint32) & SIGN
    halves |= ALMOST_HALF  # with the sign of x, in half of copysign's time
    x += halves.view(np.float32)
    blocks = np.empty(weights.shape[:2], BLOCK)
    flat = blocks.reshape(-1)
    flat["d"] = to_half(d)
    flat["qs"] = x.astype(np.int8).T  # the cast cuts
    return blocks


def decode(blocks: Blocks, out: Floats) -> None:
    """(n,) of BLOCK into (n, 32) float32."""
    out[...] = blocks["qs"]
    flat = out.reshape(-1)
    flat *= np.repeat(blocks["d"].astype(np.float32), 32)  # faster than loops of 32


Q8_0 = register(QuantFormat("Q8_0", BLOCK, encode, decode))
