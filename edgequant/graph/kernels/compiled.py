"""Which block formats have kernels, and what a kernel of a format is called."""

from edgequant.blocks import BlockType
from edgequant.errors import UnsupportedError

FLOATS = ("F32", "F16", "BF16")
# Small integers times a scale: they are multiplied with int8 activations where a GPU can.
INTEGERS = (
    "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K",
    "IQ4_NL", "IQ4_XS", "TQ2_0", "MXFP4",
)  # fmt: skip


def format_kernel(family: str, weight: BlockType) -> str:
    """Return the stem of a family's compiled file for weights of a block type.

    Raises:
        UnsupportedError: the format has no shader.
    """
    if weight.name not in FLOATS + INTEGERS:
        raise UnsupportedError(
            f"{weight.name}: no GPU kernel decodes this block format.",
            hint=f"use --device cpu, or quantize to one of {', '.join(FLOATS + INTEGERS)}.",
        )
    return f"{family}_{weight.name.lower()}"
