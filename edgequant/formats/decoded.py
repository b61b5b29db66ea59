"""The formats that edgequant reads and does not write, decoded by gguf-py.

The IQ1, IQ2 and IQ3 formats store groups of four or eight weights as one number of a codebook;
gguf-py holds those tables, and what encodes into them would be a search of another kind. NVFP4
comes from models that were trained to it. gguf-py takes 0.15 s to import, so that waits for the
first such tensor.
"""

import numpy as np

from edgequant.blocks import BLOCK_TYPES, Floats
from edgequant.formats.format import Blocks, QuantFormat, register

WITH_D = ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S")  # a float16 comes first
WITHOUT = ("IQ1_M", "NVFP4")


def _register(name: str) -> None:
    nbytes = BLOCK_TYPES[name].nbytes

    def decode(blocks: Blocks, out: Floats) -> None:
        from gguf import GGMLQuantizationType, quants

        packed = blocks.view(np.uint8).reshape(1, -1)  # one row: gguf-py is slow over many
        out.reshape(1, -1)[...] = quants.dequantize(packed, GGMLQuantizationType[name])

    fields = (
        [("d", "<f2"), ("rest", "u1", nbytes - 2)] if name in WITH_D else [("bytes", "u1", nbytes)]
    )
    register(QuantFormat(name, np.dtype(fields), None, decode))


for _name in (*WITH_D, *WITHOUT):
    _register(_name)
