"""GGUF's constants: magic, versions, value types, limits.

Source: docs/gguf.md of ggml and gguf.h of llama.cpp 0c1e57098.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

MAGIC = b"GGUF"
VERSIONS = (2, 3)  # 3 added big-endian files and changed nothing else
DEFAULT_ALIGNMENT = 32
MAX_DIMENSIONS = 4
MAX_NAME_BYTES = 63  # ggml's GGML_MAX_NAME, without the terminating zero

# Bounds that the format does not have, several times what the largest published models need. A file
# beyond them is broken or hostile, and would cost time and memory before that showed.
MAX_ALIGNMENT = 1 << 20
MAX_ENTRIES = 1 << 15  # keys, and tensors
MAX_ITEMS = 1 << 22  # of all arrays together; a vocabulary of 256k with its merges has 1.3 million
MAX_TEXT_BYTES = 1 << 24  # of all names and strings together, arrays apart


class ValueType(IntEnum):
    """The type of a key's value."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


# Little-endian layouts of the types of one size, as NumPy names them.
NUMBERS: Mapping[ValueType, str] = {
    ValueType.UINT8: "<u1", ValueType.INT8: "<i1", ValueType.UINT16: "<u2",
    ValueType.INT16: "<i2", ValueType.UINT32: "<u4", ValueType.INT32: "<i4",
    ValueType.FLOAT32: "<f4", ValueType.BOOL: "?", ValueType.UINT64: "<u8",
    ValueType.INT64: "<i8", ValueType.FLOAT64: "<f8",
}  # fmt: skip


@dataclass(frozen=True)
class KeyValue:
    """A key's value and its type on disk; for an array, `item` is the type of its entries.

    The value is an int, float, bool, str, or a sequence of them: a list, or, as the reader gives
    it, an `arrays.Array` that still lies in the file.
    """

    type: ValueType
    value: object
    item: ValueType | None = None


def u32(value: int) -> KeyValue:
    """Make an unsigned 32-bit value."""
    return KeyValue(ValueType.UINT32, value)


def f32(value: float) -> KeyValue:
    """Make a 32-bit float value."""
    return KeyValue(ValueType.FLOAT32, value)


def boolean(value: bool) -> KeyValue:
    """Make a boolean value."""
    return KeyValue(ValueType.BOOL, value)


def string(value: str) -> KeyValue:
    """Make a string value."""
    return KeyValue(ValueType.STRING, value)


def array(item: ValueType, values: Sequence[object]) -> KeyValue:
    """Make an array of one item type."""
    return KeyValue(ValueType.ARRAY, values, item)


def typed(value: object) -> KeyValue:
    """Give a plain value the type that llama.cpp's converter would store it in.

    Integers become UINT32, INT32 if negative, 64 bits wide if they must; floats FLOAT32; the items
    of a list INT32 (INT64 if they must), FLOAT32, BOOL or STRING, all alike. An empty list counts
    as one of strings. A `KeyValue` is returned as it is.

    Raises:
        TypeError: no GGUF type holds it (a bug of the caller).
    """
    if isinstance(value, KeyValue):
        return value
    if isinstance(value, bool):
        return boolean(value)
    if isinstance(value, int):
        return KeyValue(_integer_type(value), value)
    if isinstance(value, float):
        return f32(value)
    if isinstance(value, str):
        return string(value)
    if isinstance(value, (list, tuple)):
        return array(_item_type(value), value)
    raise TypeError(f"{type(value).__name__}: no GGUF type holds this")


def _integer_type(value: int) -> ValueType:
    if value < 0:
        return ValueType.INT32 if value >= -(1 << 31) else ValueType.INT64
    return ValueType.UINT32 if value < 1 << 32 else ValueType.UINT64


def _item_type(values: Sequence[object]) -> ValueType:
    kinds = set(map(type, values))
    if kinds <= {str}:
        return ValueType.STRING
    if kinds == {bool}:
        return ValueType.BOOL
    if kinds == {int}:
        small = all(-(1 << 31) <= value < 1 << 31 for value in values)  # type: ignore[operator]
        return ValueType.INT32 if small else ValueType.INT64
    if kinds <= {int, float}:
        return ValueType.FLOAT32
    raise TypeError(f"a list of {', '.join(sorted(kind.__name__ for kind in kinds))}: not one type")
