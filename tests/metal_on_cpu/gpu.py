"""A `Gpu` whose kernels are Metal's, run on the CPU and watched: parity tests take it as a device.

Only the memory that a dispatch says it reads and writes may be touched. Nothing runs at the same
time; what needs a barrier between dispatches is the host's to know, and tested there.
"""

import zlib
from typing import ClassVar

import numpy as np

from edgequant.device.kernel_files import METAL
from edgequant.device.null import NullGpu
from edgequant.device.protocol import Buffer, Place, Recording, Ticket
from edgequant.graph.launch import Dispatch, Limits
from edgequant.shipped import shipped
from metal_on_cpu.library import Library, compile_library

# Apple's GPUs since A14 and M1.
LIMITS = Limits(
    subgroup=32,
    workgroup=1024,
    shared_bytes=32 << 10,
    max_alloc_bytes=1 << 32,
    cooperative_matrix=(8, 8, 8),
    integer_dot=False,
)


class MetalOnCpu(NullGpu):
    """Implements `Gpu`; kernels have run when `submit` returns.

    Attributes:
        changed: sources that run instead of those that ship, by kernel; for all of them.
    """

    changed: ClassVar[dict[str, str]] = {}
    description = "Metal on the CPU"

    def __init__(self) -> None:
        super().__init__(LIMITS, "metal on cpu")
        self._compiled: dict[object, tuple[Library, str, tuple[int, int, int]]] = {}

    def alloc(self, nbytes: int, place: Place = Place.DEVICE) -> Buffer:
        """Return a zeroed buffer; kernels may read on to a multiple of 16."""
        return self._keep(np.zeros(-(-nbytes // 16) * 16, np.uint8).data, place)

    def address(self, buffer: Buffer) -> int:
        """Return where the memory is in this process."""
        return np.frombuffer(self.live[buffer], np.uint8).ctypes.data

    def submit(self, recording: Recording) -> Ticket:
        """Run every kernel, one after another.

        Raises:
            ShaderError: what one of them did wrong.
        """
        ticket = super().submit(recording)
        for dispatch in self.submitted[ticket]:
            self._run(dispatch)
        self.submitted[ticket] = ()
        return ticket

    def _run(self, dispatch: Dispatch) -> None:
        changed = self.changed.get(dispatch.kernel)
        key = dispatch.kernel, dispatch.constants, changed
        if key not in self._compiled:
            file, constants = METAL.find(shipped("shaders"), dispatch.kernel), dispatch.constants
            source = changed or file.path.read_text()
            library = compile_library(source, dict(enumerate(constants)), sanitize=True)
            self._compiled[key] = library, file.entry, file.threads(constants)
        library, entry, threads = self._compiled[key]
        spans = [(span, True) for span in dispatch.writes] + [(s, False) for s in dispatch.reads]
        library.dispatch(
            entry,
            dispatch.arguments,
            dispatch.workgroups,
            threads,
            order=zlib.crc32(dispatch.kernel.encode()) % 3,  # some of each, the same every time
            memory=[
                (self.address(span.buffer) + span.offset, span.nbytes, writes)
                for span, writes in spans
            ],
        )
