"""A GPU that records everything and computes nothing: planning needs no hardware.

Tests plan on it, and `transcript` writes down what a program recorded on one. What is adopted is
not copied, and what is allocated takes no memory before it is written.
"""

from collections.abc import Sequence

import numpy as np

from edgequant.device.protocol import Adopted, Buffer, Place, Recording, Ticket
from edgequant.errors import DeviceError
from edgequant.graph.launch import Dispatch, Limits

_APART = 40  # bits of an address that are within a buffer


class NullGpu:
    """Implements `Gpu` over memory of the host.

    Attributes:
        name: of the device, for errors.
        submitted: what would have run, in order.
        live: the buffers that were not freed, with their content.
        places: where each buffer ever made was asked for.
        prepared: kernels that were asked for ahead, with their constants.
        free_bytes: what `memory` says.
    """

    description = "null GPU"
    in_place = False

    def __init__(self, limits: Limits, name: str = "null") -> None:
        self.limits = limits
        self.name = name
        self.free_bytes: int | None = None
        self.submitted: list[tuple[Dispatch, ...]] = []
        self.live: dict[Buffer, memoryview] = {}
        self.prepared: list[tuple[str, tuple[int, ...]]] = []
        self.places: dict[Buffer, Place] = {}
        self._timed: set[Ticket] = set()
        self._recordings: list[tuple[tuple[Dispatch, ...], bool]] = []

    def memory(self) -> tuple[int, int] | None:
        """Return what was said to be free."""
        return None if self.free_bytes is None else (self.free_bytes, self.free_bytes)

    def adopt(self, ranges: Sequence[memoryview], progress: Adopted) -> Sequence[Buffer]:
        """Take the ranges as they are."""
        buffers = []
        for content in ranges:
            buffers.append(self._keep(content, Place.DEVICE))
            progress(len(content))
        return buffers

    def alloc(self, nbytes: int, place: Place = Place.DEVICE) -> Buffer:
        """Return a zeroed buffer, or raise DeviceError above the limit."""
        if nbytes > self.limits.max_alloc_bytes:
            raise DeviceError(
                f"{self.name}: a buffer of {nbytes:,} bytes was asked for; "
                f"the limit is {self.limits.max_alloc_bytes:,}.",
                hint="use a smaller context.",
            )
        return self._keep(np.zeros(nbytes, np.uint8).data, place)

    def address(self, buffer: Buffer) -> int:
        """Return an address that no other buffer comes near."""
        return buffer << _APART

    @staticmethod
    def locate(address: int) -> tuple[Buffer, int]:
        """Return the buffer and offset of an address."""
        return address >> _APART, address & ((1 << _APART) - 1)

    def free(self, buffer: Buffer) -> None:
        """Forget the buffer; twice is an error."""
        del self.live[buffer]

    def prepare(self, kernels: Sequence[tuple[str, tuple[int, ...]]]) -> None:
        """Note what was asked for."""
        self.prepared.extend(kernels)

    def record(self, dispatches: Sequence[Dispatch], *, timed: bool = False) -> Recording:
        """Keep the dispatches."""
        self._recordings.append((tuple(dispatches), timed))
        return len(self._recordings) - 1

    def submit(self, recording: Recording) -> Ticket:
        """Note that the recording ran."""
        dispatches, timed = self._recordings[recording]
        self.submitted.append(dispatches)
        ticket = len(self.submitted) - 1
        if timed:
            self._timed.add(ticket)
        return ticket

    def wait(self, ticket: Ticket) -> Sequence[float]:
        """Return zero seconds for each dispatch of a timed recording."""
        return [0.0] * len(self.submitted[ticket]) if ticket in self._timed else []

    def discard(self, recording: Recording) -> None:
        """Forget the recording."""
        self._recordings[recording] = ((), False)

    def write(self, buffer: Buffer, content: bytes | memoryview, offset: int = 0) -> None:
        """Copy bytes into a buffer."""
        self.live[buffer][offset : offset + len(content)] = content

    def read(self, buffer: Buffer, nbytes: int, offset: int = 0) -> bytes:
        """Return bytes of a buffer."""
        return bytes(self.live[buffer][offset : offset + nbytes])

    def peek(self, buffer: Buffer, nbytes: int, offset: int = 0) -> bytes:
        """Return bytes of a READBACK buffer."""
        assert self.places[buffer] is Place.READBACK, "peek is for what the host may see"
        return self.read(buffer, nbytes, offset)

    def close(self) -> None:
        """Forget all buffers."""
        self.live.clear()

    def _keep(self, content: memoryview, place: Place) -> Buffer:
        buffer = len(self.places) + 1
        self.places[buffer] = place
        self.live[buffer] = content
        return buffer
