"""Weights of one dimension: GPUs read them in F32 alone, as every file we know has them."""

from collections.abc import Iterable

from edgequant.blocks import BlockType
from edgequant.errors import UnsupportedError


def check(kernel: str, types: Iterable[BlockType]) -> None:
    """Refuse a vector in another format.

    Raises:
        UnsupportedError: with its format.
    """
    for kind in types:
        if kind.name != "F32":
            raise UnsupportedError(
                f"{kernel}: GPUs read its weight as F32, not as {kind.name}.",
                hint="use --device cpu, or convert the model again.",
            )
