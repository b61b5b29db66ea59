"""An array value that still lies in the file.

A vocabulary of 128k tokens and its merges are 400,000 strings; most callers want their number, or
want them copied. So an array keeps its bytes as they are on disk, which whoever made it has
checked, and decodes when asked for items.
"""

import struct
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import overload

import numpy as np

from edgequant.gguf.spec import NUMBERS, ValueType

_LENGTH = struct.Struct("<Q")


class Array(Sequence[object]):
    """A sequence of int, float, bool or str.

    Strings in arrays need not be UTF-8 (some vocabularies hold raw bytes): odd bytes become lone
    surrogates, Python's "surrogateescape", so that every token stays distinct and can be written
    back.

    Attributes:
        item: the type of the items.
        encoded: the items as on disk; strings each after their length.
    """

    def __init__(self, item: ValueType, count: int, encoded: memoryview) -> None:
        self.item = item
        self.encoded = encoded
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> object: ...
    @overload
    def __getitem__(self, index: slice) -> list[object]: ...
    def __getitem__(self, index: int | slice) -> object:
        return self.items[index]

    def __iter__(self) -> Iterator[object]:
        return iter(self.items)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Array):
            return self.item == other.item and self.encoded == other.encoded
        return isinstance(other, list) and self.items == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{self._count} x {self.item.name}>"

    @cached_property
    def items(self) -> list[object]:
        """All items, as plain Python values."""
        return self.first(self._count)

    def first(self, count: int) -> list[object]:
        """Return at most `count` items from the front, without decoding the rest."""
        count = min(count, self._count)
        if self.item is ValueType.STRING:
            return list(_strings(self.encoded, count))
        numbers = np.frombuffer(self.encoded, np.dtype(NUMBERS[self.item]), count)
        values: list[object] = numbers.tolist()
        return values


def _strings(encoded: memoryview, count: int) -> Iterator[str]:
    at = 0
    for _ in range(count):
        start = at + 8
        at = start + _LENGTH.unpack_from(encoded, at)[0]
        yield str(encoded[start:at], "utf-8", "surrogateescape")


def walk_strings(view: memoryview, start: int, count: int) -> tuple[int, int]:
    """Step over `count` strings of a file whose lengths nobody has checked yet.

    Returns:
        How many strings lie wholly inside `view`, and where the last of those ends.
    """
    at, size, unpack = start, len(view), _LENGTH.unpack_from
    for index in range(count):
        if size - at < 8:
            return index, at
        after = at + 8 + unpack(view, at)[0]
        if after > size:
            return index, at
        at = after
    return count, at
