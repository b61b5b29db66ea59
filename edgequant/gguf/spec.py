"""GGUF's constants: magic, versions, value types, limits.

Source: docs/gguf.md of ggml and gguf.h of llama.cpp 0c1e57098.
"""

from dataclasses import dataclass
from enum import IntEnum

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_DIMENSIONS = 4
MAX_NAME_BYTES = 63  # ggml's GGML_MAX_NAME, without the terminating zero


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


@dataclass(frozen=True)
class KeyValue:
    """A key's value and its type on disk; for an array, `item` is the type of its entries.

    The value is an int, float, bool, str, or a list of them.
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


def array(item: ValueType, values: list[object]) -> KeyValue:
    """Make an array of one item type."""
    return KeyValue(ValueType.ARRAY, values, item)
