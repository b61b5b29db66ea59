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
from numpy.typing import NDArray

from edgequant.gguf.spec import NUMBERS, ValueType

_LENGTH = struct.Struct("<Q")
_WINDOW = 1 << 18  # bytes that are searched for strings at once
_FEW = 4096  # strings of a window at least, for the search to be worth it


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
            return list[object](_strings(self.encoded, count))
        numbers = np.frombuffer(self.encoded, np.dtype(NUMBERS[self.item]), count)
        values: list[object] = numbers.tolist()
        return values


def _strings(encoded: memoryview, count: int) -> list[str]:
    """Decode strings, all at once: a piece of text after the other would take three times as long.

    What stands between two of them becomes one NUL; a text that holds one itself is rare.
    """
    places, end = find_strings(encoded, 0, count)
    content = np.frombuffer(encoded, np.uint8, end).copy()
    content[places] = 0
    kept = np.ones(end, np.bool_)
    for place in range(1, _LENGTH.size):
        kept[places + place] = False
    texts = content[kept].tobytes().decode("utf-8", "surrogateescape").split("\0")[1:]
    if len(texts) == count:
        return texts
    ends = [*places[1:].tolist(), end]
    return [
        str(encoded[start + _LENGTH.size : end], "utf-8", "surrogateescape")
        for start, end in zip(places.tolist(), ends, strict=True)
    ]


def find_strings(view: memoryview, start: int, count: int) -> tuple[NDArray[np.int64], int]:
    """Step over `count` strings of a file whose lengths nobody has checked yet.

    Returns:
        Where each string that lies wholly inside `view` begins with its length, and where the last
        of these ends. There are fewer than `count` if the next passes the end of `view`.
    """
    found: list[NDArray[np.int64]] = []
    left, steps = count, _FEW
    while left:
        places, start = _find_short(view, start, left)
        found.append(places)
        left -= len(places)
        if len(places) >= _FEW:
            steps = _FEW
        else:  # each time it finds little, longer until the next
            more, start = _find_any(view, start, min(left, steps))
            found.append(more)
            left -= len(more)
            steps *= 2
            if not len(more):
                break
    return np.concatenate(found) if found else np.empty(0, np.int64), start


def _find_short(view: memoryview, start: int, most: int) -> tuple[NDArray[np.int64], int]:
    """Step over strings of less than 256 bytes without NULs, as nearly all are, in a window.

    In such strings only a length is followed by seven NULs. What is found so is believed as far as
    each length leads to the next.
    """
    room = min(_WINDOW, len(view) - start - _LENGTH.size + 1)
    if room <= 0:
        return np.empty(0, np.int64), start
    lengths = np.ndarray((room,), "<u8", view, offset=start, strides=(1,))
    places = np.flatnonzero(lengths < 256)
    ends = places + _LENGTH.size + lengths[places].astype(np.int64)
    if not len(places) or places[0]:
        return np.empty(0, np.int64), start
    joined = ends[:-1] == places[1:]
    right = min(most, 1 + (len(joined) if joined.all() else int(joined.argmin())))
    right = int(np.searchsorted(ends[:right], len(view) - start, "right"))
    return places[:right] + start, start + int(ends[right - 1]) if right else start


def _find_any(view: memoryview, start: int, most: int) -> tuple[NDArray[np.int64], int]:
    """Step over strings one by one."""
    found: list[int] = []
    size, unpack = len(view), _LENGTH.unpack_from
    while len(found) < most and size - start >= _LENGTH.size:
        end = start + _LENGTH.size + unpack(view, start)[0]
        if end > size:
            break
        found.append(start)
        start = end
    return np.array(found, np.int64), start
