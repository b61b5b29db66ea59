"""A GPU that records everything and computes nothing: tests of planning need no hardware."""

from collections.abc import Sequence

from edgequant.device.protocol import Buffer, Pipeline, Recording, Ticket
from edgequant.errors import DeviceError
from edgequant.graph.launch import Dispatch, Limits


class NullGpu:
    """Implements `Gpu` over bytearrays; `submitted` lists what would have run, in order."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.submitted: list[tuple[Dispatch, ...]] = []
        self.kernels: list[str] = []
        self._buffers: list[bytearray] = []
        self._recordings: list[tuple[Dispatch, ...]] = []

    def adopt(self, mapping: memoryview) -> Sequence[Buffer]:
        """Cut the mapping into buffers no larger than the limit."""
        step = self.limits.max_alloc_bytes
        return [self._add(bytearray(mapping[i : i + step])) for i in range(0, len(mapping), step)]

    def alloc(self, nbytes: int) -> Buffer:
        """Return a zeroed buffer, or raise DeviceError above the limit."""
        if nbytes > self.limits.max_alloc_bytes:
            raise DeviceError(
                f"null: a buffer of {nbytes:,} bytes was asked for; "
                f"the limit is {self.limits.max_alloc_bytes:,}.",
                hint="use a smaller context.",
            )
        return self._add(bytearray(nbytes))

    def pipeline(self, kernel: str) -> Pipeline:
        """Remember the kernel's name; the same name gives the same pipeline."""
        if kernel not in self.kernels:
            self.kernels.append(kernel)
        return self.kernels.index(kernel)

    def record(self, dispatches: Sequence[Dispatch]) -> Recording:
        """Keep the dispatches."""
        self._recordings.append(tuple(dispatches))
        return len(self._recordings) - 1

    def submit(self, recording: Recording) -> Ticket:
        """Note that the recording ran."""
        self.submitted.append(self._recordings[recording])
        return len(self.submitted) - 1

    def wait(self, ticket: Ticket) -> Sequence[float]:
        """Return zero seconds for each dispatch."""
        return [0.0] * len(self.submitted[ticket])

    def write(self, buffer: Buffer, content: memoryview) -> None:
        """Copy bytes to the start of a buffer."""
        self._buffers[buffer][: len(content)] = content

    def read(self, buffer: Buffer) -> memoryview:
        """Return a buffer's bytes."""
        return memoryview(self._buffers[buffer])

    def _add(self, content: bytearray) -> Buffer:
        self._buffers.append(content)
        return len(self._buffers) - 1
