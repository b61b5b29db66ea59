"""The formats that edgequant reads and does not write, decoded by gguf-py.

IQ1 stores groups of eight weights as one number of a codebook; gguf-py holds that table, and what
encodes into it would be a search of another kind. NVFP4 comes from models that were trained to it.
gguf-py takes 0.15 s to import, so that waits for the first such tensor.
"""

import numpy as np

from edgequant.blocks import BLOCK_TYPES, Floats
from edgequant.formats.format import Blocks, QuantFormat, register


def _register(name: str) -> None:
    def decode(blocks: Blocks, out: Floats) -> None:
        from gguf import GGMLQuantizationType, quants

        packed = blocks.view(np.uint8).reshape(1, -1)  # one row: gguf-py is slow over many
        out.reshape(1, -1)[...] = quants.dequantize(packed, GGMLQuantizationType[name])

    fields = np.dtype([("bytes", "u1", BLOCK_TYPES[name].nbytes)])
    register(QuantFormat(name, fields, None, decode))


for _name in ("IQ1_S", "IQ1_M", "NVFP4"):
    _register(_name)
