"""Buffers, and the addresses by which kernels reach them.

Memory is unified, as on every Mac whose GPU is Apple's: `contents` and kernels see the same bytes.
But their addresses differ, as they may on a Mac: those of kernels lie in a range of their own, far
apart, and become real ones when a kernel runs. So a pointer of the CPU in a kernel's arguments is
noticed.
"""

from bisect import bisect_right, insort
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pretend_metal.kinds import POINTER, UNSIGNED
from pretend_metal.objects import Heap, Thing, message
from pretend_metal.refused import Refused

_FIRST = 1 << 40  # of the addresses of kernels: no process has memory there
_APART = 1 << 20  # at least, between two buffers
_MAPS = Path("/proc/self/maps")


class Buffer(Thing):
    """MTLBuffer, of shared storage.

    Attributes:
        start: its address for the CPU.
        length: in bytes.
        address: its address for kernels.
        pins: how many command buffers that were committed, and are not completed, use it.
    """

    def __init__(self, heap: Heap, space: "AddressSpace", start: int, length: int) -> None:
        super().__init__(heap)
        self.start, self.length, self.pins = start, length, 0
        self._memory: np.ndarray | None = None
        self._space = space
        self.address = space.place(self)

    @classmethod
    def allocate(cls, heap: Heap, space: "AddressSpace", length: int, page: int) -> "Buffer":
        """Make a zeroed buffer that begins at a page."""
        memory = np.zeros(length + page, np.uint8)
        buffer = cls(heap, space, -(-memory.ctypes.data // page) * page, length)
        buffer._memory = memory
        return buffer

    def dealloc(self) -> None:
        if self.pins:
            raise Refused(f"{self!r} was released while a command buffer that uses it may run")
        self._space.remove(self)
        self._memory = None

    @message("contents", returns=POINTER)
    def contents(self) -> int:
        return self.start

    @message("gpuAddress", returns=UNSIGNED)
    def gpu_address(self) -> int:
        return self.address


class AddressSpace:
    """Where buffers lie for kernels."""

    def __init__(self) -> None:
        self._next = _FIRST
        self._starts: list[int] = []
        self._buffers: dict[int, Buffer] = {}

    def place(self, buffer: Buffer) -> int:
        """Give a buffer its address; none is ever given twice."""
        with buffer.heap.lock:
            address = self._next
            self._next += (buffer.length // _APART + 2) * _APART
            insort(self._starts, address)
            self._buffers[address] = buffer
        return address

    def remove(self, buffer: Buffer) -> None:
        """Take a buffer's address away."""
        with buffer.heap.lock:
            self._starts.remove(buffer.address)
            del self._buffers[buffer.address]

    def find(self, address: int) -> Buffer:
        """Return the buffer that has a byte at an address.

        Raises:
            Refused: there is none.
        """
        index = bisect_right(self._starts, address) - 1
        if index >= 0:
            buffer = self._buffers[self._starts[index]]
            if address < buffer.address + buffer.length:
                return buffer
        raise Refused(f"{address:#x} is in no buffer")


def is_mapped(start: int, length: int, maps: Callable[[], str] = _MAPS.read_text) -> bool:
    """Tell whether this process has memory at all of a range (Linux)."""
    reached = start
    for line in maps().splitlines():
        low, high = (int(end, 16) for end in line.split(maxsplit=1)[0].split("-"))
        if low <= reached < high:
            reached = high
    return reached >= start + length
