"""Buffers that the host sees too: numbers for them, and copies that stay within them.

It knows addresses, and no API: who makes a buffer says where it lies, and gives it back.
"""

from ctypes import memmove, string_at
from itertools import count
from typing import NamedTuple

from edgequant.device.memory import address_of
from edgequant.device.protocol import Buffer


class Seen(NamedTuple):
    """A buffer: what the API has for it, its bytes, and where they begin for kernels and host."""

    handle: int
    nbytes: int
    address: int
    host: int


class SeenBuffers:
    """Buffers by number."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._kept: dict[Buffer, Seen] = {}

    def __getitem__(self, buffer: Buffer) -> Seen:
        """Return what is known of a buffer."""
        return self._kept[buffer]

    def keep(self, buffer: Seen) -> Buffer:
        """Give a buffer a number."""
        number = next(self._numbers)
        self._kept[number] = buffer
        return number

    def take(self, buffer: Buffer) -> int:
        """Forget a buffer and return its handle."""
        return self._kept.pop(buffer).handle

    def take_all(self) -> list[int]:
        """Forget all and return their handles."""
        return [self.take(buffer) for buffer in list(self._kept)]

    def write(self, buffer: Buffer, content: bytes | memoryview, offset: int) -> None:
        """Copy bytes into a buffer."""
        source = content if isinstance(content, bytes) else address_of(content)
        memmove(self._within(buffer, len(content), offset), source, len(content))

    def read(self, buffer: Buffer, nbytes: int, offset: int) -> bytes:
        """Return bytes of a buffer as they are now."""
        return string_at(self._within(buffer, nbytes, offset), nbytes)

    def _within(self, buffer: Buffer, nbytes: int, offset: int) -> int:
        found = self._kept[buffer]
        if not 0 <= offset <= offset + nbytes <= found.nbytes:
            raise ValueError(f"bytes {offset} to {offset + nbytes} of a buffer of {found.nbytes}")
        return found.host + offset
