"""A GPU whose memory is the host's: the verbs of `Gpu`, on top of the few that its API must have.

Buffers are seen by both sides, so writing and reading are copies. An `Api` makes and releases them,
compiles, starts work and waits for it; numbers, order and bounds are kept here.
"""

import mmap
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Generic, Protocol, TypeVar

from edgequant.device.compiled import Compiled, Key
from edgequant.device.flying import Flying
from edgequant.device.protocol import Adopted, Buffer, Place, Recording, Ticket
from edgequant.device.seen import Seen, SeenBuffers
from edgequant.errors import DeviceError
from edgequant.graph.launch import Dispatch, Limits

Kernel = TypeVar("Kernel")
Recorded = TypeVar("Recorded")
Work = TypeVar("Work")


class Api(Protocol[Kernel, Recorded, Work]):
    """What a GPU API must have; see `Gpu` for the attributes and for `memory`."""

    limits: Limits
    description: str
    in_place: bool

    def memory(self) -> tuple[int, int] | None:
        """Return how many bytes buffers can still take, and of how many."""

    def make_buffer(self, nbytes: int) -> Seen:
        """Make a zeroed buffer.

        Raises:
            DeviceError: no memory, with the sizes.
        """

    def map_buffer(self, content: memoryview) -> Seen:
        """Make a buffer of bytes of a mapped file, where they are.

        Raises:
            DeviceError: no memory, with the sizes.
        """

    def free_buffer(self, handle: int) -> None:
        """Give a buffer back."""

    def compile(self, key: Key) -> Kernel:
        """Compile a kernel; may be called on several threads.

        Raises:
            DeviceError: it does not compile.
        """

    def encode(
        self,
        dispatches: Sequence[Dispatch],
        kernels: Sequence[Kernel],
        handles: Mapping[Buffer, int],
        *,
        timed: bool,
    ) -> Recorded:
        """Turn dispatches, with the kernel of each, into something that can start many times."""

    def start(self, recorded: Recorded) -> Sequence[Work]:
        """Start it; if it is timed, each dispatch is a piece of work."""

    def finish(self, work: Work) -> float | DeviceError:
        """Wait for a piece of work and give it back; return its seconds, or what went wrong."""

    def close(self, kernels: Sequence[Kernel]) -> None:
        """Give back the kernels, and everything else but buffers."""


class UnifiedGpu(Generic[Kernel, Recorded, Work]):
    """A GPU on one API."""

    def __init__(self, api: Api[Kernel, Recorded, Work]) -> None:
        self.limits = api.limits
        self.description = api.description
        self.in_place = api.in_place
        self._api = api
        self._compiled = Compiled(api.compile)
        self._buffers = SeenBuffers()
        self._flying = Flying(api.finish)
        self._numbers = count(1)
        self._recorded: dict[Recording, tuple[Recorded, bool]] = {}

    def memory(self) -> tuple[int, int] | None:
        """Return how many bytes buffers can still take, and of how many."""
        return self._api.memory()

    def adopt(self, ranges: Sequence[memoryview], progress: Adopted) -> Sequence[Buffer]:
        """Make ranges of mapped files readable by kernels; what is not of a file is copied."""
        buffers: list[Buffer] = []
        try:
            for content in ranges:
                buffers.append(self._adopt(content))
                progress(content.nbytes)
        except BaseException:
            for buffer in buffers:
                self.free(buffer)
            raise
        return buffers

    def alloc(self, nbytes: int, place: Place = Place.DEVICE) -> Buffer:  # noqa: ARG002 -- one memory
        """Return a zeroed buffer; see `Gpu`."""
        return self._buffers.keep(self._api.make_buffer(nbytes))

    def address(self, buffer: Buffer) -> int:
        """Return the buffer's address, as kernels see it."""
        return self._buffers[buffer].address

    def free(self, buffer: Buffer) -> None:
        """Give a buffer back."""
        self._api.free_buffer(self._buffers.take(buffer))

    def prepare(self, kernels: Sequence[Key]) -> None:
        """Start to compile kernels; see `Gpu`."""
        self._compiled.prepare(kernels)

    def record(self, dispatches: Sequence[Dispatch], *, timed: bool = False) -> Recording:
        """Turn dispatches into a recording; see `Gpu`."""
        self._compiled.compile((d.kernel, d.constants) for d in dispatches)
        kernels = [self._compiled[d.kernel, d.constants] for d in dispatches]
        touched = {span.buffer for d in dispatches for span in (*d.reads, *d.writes)}
        handles = {buffer: self._buffers[buffer].handle for buffer in touched}
        number = next(self._numbers)
        encoded = self._api.encode(dispatches, kernels, handles, timed=timed)
        self._recorded[number] = (encoded, timed)
        return number

    def submit(self, recording: Recording) -> Ticket:
        """Start a recording."""
        encoded, timed = self._recorded[recording]
        return self._flying.add(self._api.start(encoded), timed=timed)

    def wait(self, ticket: Ticket) -> Sequence[float]:
        """Wait until it is done; seconds of each dispatch of a timed recording."""
        return self._flying.wait(ticket)

    def discard(self, recording: Recording) -> None:
        """Forget a recording."""
        del self._recorded[recording]

    def write(self, buffer: Buffer, content: bytes | memoryview, offset: int = 0) -> None:
        """Copy bytes into a buffer."""
        self._flying.wait_all()
        self._buffers.write(buffer, content, offset)

    def read(self, buffer: Buffer, nbytes: int, offset: int = 0) -> bytes:
        """Return bytes of a buffer."""
        self._flying.wait_all()
        return self._buffers.read(buffer, nbytes, offset)

    def peek(self, buffer: Buffer, nbytes: int, offset: int = 0) -> bytes:
        """Return bytes of a buffer as they are now."""
        return self._buffers.read(buffer, nbytes, offset)

    def close(self) -> None:
        """Give everything back, also after an error."""
        with suppress(DeviceError):
            self._flying.wait_all()
        for handle in self._buffers.take_all():
            self._api.free_buffer(handle)
        self._recorded.clear()
        self._api.close(self._compiled.take_all())

    def _adopt(self, content: memoryview) -> Buffer:
        if isinstance(content.obj, mmap.mmap) and content.nbytes:
            return self._buffers.keep(self._api.map_buffer(content))
        buffer = self.alloc(content.nbytes)  # its pages hold what is not meant, and may be reused
        self._buffers.write(buffer, content, 0)
        return buffer
