"""What a block format is, the registry of them, and the verbs on whole rows.

Rows come as (rows, columns) float32; a format's own functions see (rows, blocks, weights). It does
not know tensors, files, or which format is good for what.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from edgequant.blocks import BLOCK_TYPES, BlockType, Bytes, Floats
from edgequant.errors import UnsupportedError

Blocks = NDArray[np.void]
Encode = Callable[[Floats, Floats | None], Blocks]
Decode = Callable[[Blocks], Floats]


@dataclass(frozen=True)
class QuantFormat:
    """One block format.

    Attributes:
        name: ggml's name, such as "Q4_K".
        block: the layout of one block; its itemsize is the block type's `nbytes`.
        encode: (rows, blocks, weights) float32 and the importance of each column, (blocks, weights)
            float32 >= 0 or None for all alike -> (rows, blocks) of `block`. Rows are independent.
        decode: (…,) of `block` -> (…, weights) float32, bit-equal to gguf-py.
    """

    name: str
    block: np.dtype
    encode: Encode
    decode: Decode

    @property
    def type(self) -> BlockType:
        """The ggml type: id, weights and bytes a block."""
        return BLOCK_TYPES[self.name]


_registry: dict[str, QuantFormat] = {}


def register(fmt: QuantFormat) -> QuantFormat:
    """Add a format; called once by each format file."""
    if fmt.block.itemsize != fmt.type.nbytes:
        raise ValueError(
            f"{fmt.name}: the layout has {fmt.block.itemsize} bytes, not {fmt.type.nbytes}"
        )
    _registry[fmt.name] = fmt
    return fmt


@cache
def _discover() -> None:
    package = importlib.import_module("edgequant.formats")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"edgequant.formats.{module.name}")


def names() -> tuple[str, ...]:
    """Return the formats that can be encoded and decoded, in ggml's order."""
    _discover()
    return tuple(sorted(_registry, key=lambda name: BLOCK_TYPES[name].ggml_id))


def find(name: str) -> QuantFormat:
    """Return a format by its ggml name.

    Raises:
        UnsupportedError: unknown name; the hint lists those known.
    """
    _discover()
    fmt = _registry.get(name)
    if fmt is None:
        raise UnsupportedError(
            f"{name}: not a block format that edgequant can encode or decode.",
            hint=f"use one of {', '.join(names())}.",
        )
    return fmt


def quantize(fmt: QuantFormat, rows: Floats, importance: Floats | None = None) -> Bytes:
    """Encode rows.

    Args:
        fmt: the format; its blocks must divide the row length.
        rows: (rows, columns) float32, finite.
        importance: (columns,) float32, mean squared activation of each column, >= 0.

    Returns:
        (rows, row bytes) uint8.
    """
    count, columns = rows.shape
    blocks, rest = divmod(columns, fmt.type.weights)
    if rest:
        raise ValueError(
            f"{columns} columns are not whole blocks of {fmt.type.weights} ({fmt.name})"
        )
    shaped = rows.reshape(count, blocks, fmt.type.weights)
    weighing = None if importance is None else importance.reshape(blocks, fmt.type.weights)
    encoded = fmt.encode(shaped, weighing)
    return np.ascontiguousarray(encoded).view(np.uint8).reshape(count, blocks * fmt.type.nbytes)


def dequantize(fmt: QuantFormat, data: Bytes) -> Floats:
    """Decode rows: (rows, row bytes) uint8 -> (rows, columns) float32."""
    count = data.shape[0]
    blocks = np.ascontiguousarray(data).view(fmt.block).reshape(count, -1)
    return fmt.decode(blocks).reshape(count, -1)
