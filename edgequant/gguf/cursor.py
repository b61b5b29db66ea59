"""Reading forward through the head of a file that may be broken or hostile.

Every read is bounded by the bytes that are left, in Python integers, before it sizes anything. It
knows GGUF's values, and not what they are for.
"""

import struct
from pathlib import Path

from edgequant.errors import GGUFError
from edgequant.gguf.arrays import Array, find_strings
from edgequant.gguf.spec import MAX_ITEMS, MAX_TEXT_BYTES, NUMBERS, KeyValue, ValueType

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_SCALARS = {
    ValueType.UINT8: struct.Struct("<B"), ValueType.INT8: struct.Struct("<b"),
    ValueType.UINT16: struct.Struct("<H"), ValueType.INT16: struct.Struct("<h"),
    ValueType.UINT32: _U32, ValueType.INT32: struct.Struct("<i"),
    ValueType.FLOAT32: struct.Struct("<f"), ValueType.BOOL: struct.Struct("<?"),
    ValueType.UINT64: _U64, ValueType.INT64: struct.Struct("<q"),
    ValueType.FLOAT64: struct.Struct("<d"),
}  # fmt: skip

CUT_SHORT = "download or make the file again; it was cut short or is damaged."
DAMAGED = "download or make the file again; it is damaged, or its writer is at fault."


class Cursor:
    """A position in a file's bytes.

    Attributes:
        at: the byte read next.
    """

    def __init__(self, path: Path, view: memoryview) -> None:
        self.path = path
        self.at = 0
        self._view = view
        self._text_left = MAX_TEXT_BYTES
        self._items_left = MAX_ITEMS

    @property
    def left(self) -> int:
        """Bytes from here to the end of the file."""
        return len(self._view) - self.at

    def u32(self, what: str) -> int:
        """Read an unsigned 32-bit number; `what` names it in an error."""
        return int(self._scalar(_U32, what))

    def u64(self, what: str) -> int:
        """Read an unsigned 64-bit number."""
        return int(self._scalar(_U64, what))

    def text(self, what: str) -> str:
        """Read a string, which must be UTF-8.

        Raises:
            GGUFError: it passes the file's end, is too long, or is not UTF-8.
        """
        length = self.u64(f"the length of {what}")
        start = self.at
        self._skip(length, what)
        self._text_left -= length
        if self._text_left < 0:
            raise GGUFError(
                f"{self.path}: names and strings hold more than {MAX_TEXT_BYTES:,} bytes, "
                f"reached at {what} with {length:,}.",
                hint=DAMAGED,
            )
        try:
            return str(self._view[start : self.at], "utf-8")
        except UnicodeDecodeError as error:
            raise GGUFError(
                f"{self.path}: {what} is not UTF-8: byte {self._view[start + error.start]:#04x} "
                f"at position {error.start:,} of {length:,}.",
                hint=DAMAGED,
            ) from error

    def value(self, what: str) -> KeyValue:
        """Read a type and a value of it."""
        kind = self._value_type(what)
        if kind is ValueType.STRING:
            return KeyValue(kind, self.text(f"the value of {what}"))
        if kind is ValueType.ARRAY:
            return self._array(what)
        return KeyValue(kind, self._scalar(_SCALARS[kind], f"the value of {what}"))

    def _array(self, what: str) -> KeyValue:
        item = self._value_type(f"the items of {what}")
        if item is ValueType.ARRAY:
            raise GGUFError(
                f"{self.path}: {what} is an array of arrays.",
                hint="make the file again without it; llama.cpp does not read these either.",
            )
        count = self.u64(f"the length of {what}")
        least = 8 if item is ValueType.STRING else _SCALARS[item].size
        if count * least > self.left:
            raise GGUFError(
                f"{self.path}: {what} claims {count:,} items of at least {least} bytes, "
                f"but the file has {self.left:,} more bytes.",
                hint=CUT_SHORT,
            )
        self._items_left -= count
        if self._items_left < 0:
            raise GGUFError(
                f"{self.path}: arrays hold more than {MAX_ITEMS:,} items, "
                f"reached at {what} with {count:,}.",
                hint=DAMAGED,
            )
        start = self.at
        if item is ValueType.STRING:
            found, self.at = find_strings(self._view, start, count)
            if len(found) < count:
                raise GGUFError(
                    f"{self.path}: item {len(found):,} of {count:,} of {what} passes the end of "
                    f"the file, which has {len(self._view):,} bytes.",
                    hint=CUT_SHORT,
                )
        else:
            self._skip(count * least, what)
        return KeyValue(ValueType.ARRAY, Array(item, count, self._view[start : self.at]), item)

    def _value_type(self, what: str) -> ValueType:
        number = self.u32(f"the type of {what}")
        if number != ValueType.ARRAY and number != ValueType.STRING and number not in NUMBERS:
            raise GGUFError(
                f"{self.path}: {what} has value type {number}; types are 0 to {max(ValueType)}.",
                hint=DAMAGED,
            )
        return ValueType(number)

    def _scalar(self, layout: struct.Struct, what: str) -> int | float | bool:
        start = self.at
        self._skip(layout.size, what)
        value: int | float | bool = layout.unpack_from(self._view, start)[0]
        return value

    def _skip(self, nbytes: int, what: str) -> None:
        if nbytes > self.left:
            raise GGUFError(
                f"{self.path}: {what} takes {nbytes:,} bytes from byte {self.at:,}, "
                f"but the file has {len(self._view):,}.",
                hint=CUT_SHORT,
            )
        self.at += nbytes
