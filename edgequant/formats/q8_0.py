"""Q8_0: 32 weights a block, x = d q with q in -127..127."""

import numpy as np

from edgequant.blocks import Floats
from edgequant.formats.format import Blocks, QuantFormat, register

BLOCK = np.dtype([("d", "<f2"), ("qs", "i1", 32)])  # 34 bytes
LARGEST = np.float32(65504)


def encode(weights: Floats, importance: Floats | None) -> Blocks:  # noqa: ARG001 -- as ggml's
    """(rows, blocks, 32) float32 -> (rows, blocks) of BLOCK, the same bytes as ggml.

    The largest magnitude becomes ±127 and the others round to nearest, halves away from zero;
    importance is ignored. Differs: a scale beyond float16 is held at 65504, not infinite.

    Source: quantize_row_q8_0_ref, ggml-quants.c at llama.cpp 0c1e57098.
    """
    largest = np.maximum(weights.max(-1), -weights.min(-1))
    d = np.minimum(largest / np.float32(127), LARGEST)
    inverse = np.divide(1, d, out=np.zeros_like(d), where=d >= np.finfo(np.float32).tiny)
    scaled = weights * inverse[..., None]
    np.clip(scaled, -127, 127, out=scaled)
    half = np.copysign(np.float32(0.5), scaled)
    whole = np.trunc(scaled)
    scaled -= whole  # exact; so no sum is rounded before it is cut
    scaled += half
    whole += np.trunc(scaled, out=scaled)
    blocks = np.empty(weights.shape[:-1], BLOCK)
    blocks["d"] = d
    blocks["qs"] = whole
    return blocks


def decode(blocks: Blocks, out: Floats) -> None:
    """(n,) of BLOCK into (n, 32) float32."""
    out[...] = blocks["qs"]
    out *= blocks["d"].astype(np.float32)[:, None]


Q8_0 = register(QuantFormat("Q8_0", BLOCK, encode, decode))
