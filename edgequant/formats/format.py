"""What a block format is, the registry of them, and the verbs on whole rows.

Rows come as (rows, columns) float32; a format's own functions see blocks. Both verbs cut the rows
into pieces that stay in a core's cache, and hold no state, so callers may run them on row chunks in
processes, or in threads. It does not know tensors, files, or which format is good for what.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgequant.blocks import BLOCK_TYPES, BlockType, Bytes, Floats
from edgequant.errors import UnsupportedError
from edgequant.formats.search import Effort

Blocks = NDArray[Any]
Encode = Callable[[Floats, Floats | None, Effort], Blocks]
Decode = Callable[[Blocks, Floats], None]
Refit = Callable[[Blocks, Floats], None]

ENCODE_WEIGHTS = 3 << 15  # a search holds six to sixteen float32 arrays of this size at once
UNSEEN = 1e-4  # share of the mean importance that a column never reached is given
DECODE_WEIGHTS = 1 << 16  # 256 KiB of float32, written and scaled while still in cache


@dataclass(frozen=True)
class QuantFormat:
    """One block format.

    Attributes:
        name: ggml's name, such as "Q4_K".
        block: the layout of one block; its itemsize is the block type's `nbytes`.
        encode: (rows, blocks, weights) float32 and the importance of each column, (blocks, weights)
            float32 > 0 with mean 1 in every block, or None when nothing is known of it, and how
            hard to look -> (rows, blocks) of `block`. Rows are independent. None if edgequant reads
            the format without writing it.
        decode: (n,) of `block` into (n, weights) float32, contiguous; bit-equal to gguf-py.
        refit: (n,) of `block` and (n, weights) float32 -> puts the levels nearest to those weights
            into the blocks, whose scales and mins stay. None if nothing tunes this format.
    """

    name: str
    block: np.dtype
    encode: Encode | None
    decode: Decode
    refit: Refit | None = None

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


def names(*, encoded: bool = True) -> tuple[str, ...]:
    """Return the formats in ggml's order: those that can be encoded, or all that can be decoded."""
    _discover()
    chosen = (name for name, fmt in _registry.items() if fmt.encode is not None or not encoded)
    return tuple(sorted(chosen, key=lambda name: BLOCK_TYPES[name].ggml_id))


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
            hint=f"use one of {', '.join(names(encoded=False))}.",
        )
    return fmt


class Encoder:
    """A format, an importance and an effort: encodes rows that share them.

    Args:
        fmt: the format; its blocks must divide the row length.
        importance: (columns,) float32, mean squared activation of each column, finite, >= 0.
        effort: how hard to look for the least error.

    Raises:
        UnsupportedError: the format can only be decoded; the hint lists those that can be encoded.
    """

    def __init__(
        self, fmt: QuantFormat, importance: Floats | None = None, effort: Effort = Effort.DEFAULT
    ) -> None:
        if fmt.encode is None:
            raise UnsupportedError(
                f"{fmt.name}: edgequant reads this block format and cannot write it.",
                hint=f"use one of {', '.join(names())}.",
            )
        self._type, self._encode, self._effort = fmt.type, fmt.encode, effort
        self._importance = None
        if importance is not None:
            self._importance = _balance(importance.reshape(-1, fmt.type.weights))

    def encode(self, rows: Floats) -> Bytes:
        """Encode rows: (rows, columns) float32, finite -> (rows, row bytes) uint8.

        The bytes of a row depend on that row and the importance alone. What a format cannot hold (a
        scale above float16's 65504) is held at its largest value: finite in, finite out.
        """
        count, columns = rows.shape
        row_nbytes, weights = self._type.row_nbytes(columns), self._type.weights
        encoded = np.empty((count, row_nbytes), np.uint8)
        step = max(1, ENCODE_WEIGHTS // max(1, columns))
        for start in range(0, count, step):
            piece = np.ascontiguousarray(rows[start : start + step], np.float32)
            if piece.size == weights:  # NumPy adds up a lone block in another order
                piece = np.repeat(piece, 2, axis=0)
            blocks = piece.reshape(-1, columns // weights, weights)
            done = self._encode(blocks, self._importance, self._effort)
            encoded[start : start + step] = done.view(np.uint8).reshape(-1, row_nbytes)[
                : count - start
            ]
        return encoded


def quantize(
    fmt: QuantFormat,
    rows: Floats,
    importance: Floats | None = None,
    *,
    effort: Effort = Effort.DEFAULT,
) -> Bytes:
    """Encode rows as an `Encoder` does: (rows, columns) float32 -> (rows, row bytes) uint8."""
    return Encoder(fmt, importance, effort).encode(rows)


def _balance(importance: Floats) -> Floats:
    """Scale the importance of every block, (blocks, weights), to mean 1, and leave no zeros.

    Only ratios within a block matter to a search. A column that no calibration text reached still
    has its weight stored, so it counts for a little; where a whole block was never reached all its
    columns count alike (the all-zero blocks gave NaN in ggml-org/llama.cpp#8661 and #12439).
    """
    exact = importance.astype(np.float64)
    mean = exact.mean(axis=1, keepdims=True)
    share = np.divide(exact, mean, out=np.ones_like(exact), where=mean > 0)
    share += UNSEEN
    balanced: Floats = share.astype(np.float32)
    return balanced


def dequantize(fmt: QuantFormat, data: Bytes) -> Floats:
    """Decode rows: (rows, row bytes) uint8 -> (rows, columns) float32."""
    count, row_nbytes = data.shape
    blocks = np.ascontiguousarray(data).reshape(-1).view(fmt.block)
    decoded = np.empty((len(blocks), fmt.type.weights), np.float32)
    step = max(1, DECODE_WEIGHTS // fmt.type.weights)
    with np.errstate(invalid="ignore", over="ignore"):  # a broken scale decodes to what it says
        for start in range(0, len(blocks), step):
            fmt.decode(blocks[start : start + step], decoded[start : start + step])
    return decoded.reshape(count, row_nbytes // fmt.type.nbytes * fmt.type.weights)
