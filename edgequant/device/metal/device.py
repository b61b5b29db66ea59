"""Metal as a `UnifiedGpu` asks for it: the device, its queue, its buffers.

Every encoder tells what its kernels read and write, so command buffers of the queue run one after
the other where they must; residency sets, which macOS 15 has, would only repeat that.
"""

import mmap
import platform
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from edgequant.device.kept import notes_file
from edgequant.device.kernel_files import METAL
from edgequant.device.memory import address_of
from edgequant.device.metal import objc
from edgequant.device.metal.objc import Messages, Object, Runtime
from edgequant.device.metal.pipelines import LANES, Pipeline, compile_kernel
from edgequant.device.metal.recording import Recorded
from edgequant.device.seen import Seen
from edgequant.errors import DeviceError
from edgequant.graph.launch import Limits
from edgequant.shipped import shipped

_SHARED = objc.RESOURCE_STORAGE_MODE_SHARED


class Metal:
    """The system's Metal device, opened; `shaders` is the folder of those that ship.

    Raises:
        DeviceError: there is no device, or it or the system is too old.
    """

    edition = "Metal 3"
    in_place = False  # files stay where they are, but what kernels read counts as the GPU's memory

    def __init__(self, runtime: Runtime, shaders: Path) -> None:
        self._send = send = Messages(runtime)
        self._device = device = runtime.default_device() or 0
        with send.pool():
            self.name = send.text(send(device, "name")) if device else ""
            if lacking := self._lacking():
                if device:
                    send(device, "release")
                raise DeviceError(f"metal: {lacking}", hint="use --device auto, or --device cpu.")
            self.limits = Limits(
                subgroup=LANES,
                workgroup=send(device, "maxThreadsPerThreadgroup").width,
                shared_bytes=send(device, "maxThreadgroupMemoryLength"),
                max_alloc_bytes=send(device, "maxBufferLength") - 2 * mmap.PAGESIZE,
                cooperative_matrix=(8, 8, 8),
                integer_dot=False,
            )
            self._queue = send(device, "newCommandQueue")
        self.compile = partial(compile_kernel, send, device, self.name, shaders)
        self.encode = partial(Recorded, send)
        self.driver = platform.platform(terse=True)
        self.description = f"{self.name}, {self.driver}, {self.edition}"
        kernels = shaders / "generated" / METAL.folder
        self.notes = notes_file(f"{self.name}-{platform.release()}", kernels)

    def memory(self) -> tuple[int, int]:
        """Return what is left of the working set that the system recommends, and all of it."""
        total = self._send(self._device, "recommendedMaxWorkingSetSize")
        return max(0, total - self._send(self._device, "currentAllocatedSize")), total

    def make_buffer(self, nbytes: int) -> Seen:
        """Make a buffer, which Metal zeroes; see `Api`."""
        whole = -(-max(nbytes, 1) // 16) * 16
        return self._made(nbytes, 0, "newBufferWithLength:options:", whole, _SHARED)

    def map_buffer(self, content: memoryview) -> Seen:
        """Make a buffer of the whole pages around a part of a mapped file; see `Api`."""
        start = address_of(content)
        skip = start % mmap.PAGESIZE
        whole = -(-(skip + content.nbytes) // mmap.PAGESIZE) * mmap.PAGESIZE
        selector = "newBufferWithBytesNoCopy:length:options:deallocator:"
        return self._made(content.nbytes, skip, selector, start - skip, whole, _SHARED, None)

    def free_buffer(self, handle: int) -> None:
        """Give a buffer back."""
        self._send(handle, "release")

    def start(self, recorded: Recorded) -> list[Object]:
        """Encode and commit; see `Api`."""
        with self._send.pool():
            return recorded.commit(self._queue)

    def finish(self, work: Object) -> float | DeviceError:
        """Wait for a command buffer and release it; see `Api`."""
        send = self._send
        with send.pool():
            send(work, "waitUntilCompleted")
            result: float | DeviceError = send(work, "GPUEndTime") - send(work, "GPUStartTime")
            if send(work, "status") == objc.COMMAND_BUFFER_STATUS_ERROR:
                result = self._failure(send(work, "error"))
            send(work, "release")
        return result

    def close(self, kernels: Sequence[Pipeline]) -> None:
        """Give everything back; see `Api`."""
        for item in (*(kernel.state for kernel in kernels), self._queue, self._device):
            self._send(item, "release")

    def _lacking(self) -> str | None:
        """Return why the device cannot be used, or None."""
        if not self._device:
            return "the system has no Metal device."
        if not self._send(self._device, "supportsFamily:", objc.GPU_FAMILY_APPLE7):
            return f"{self.name} is older than Apple7, which A14 and M1 are."
        if not self._send(self._device, "supportsFamily:", objc.GPU_FAMILY_METAL3):
            return "the system is older than macOS 13 and iOS 16, which have Metal 3."
        return None

    def _made(self, nbytes: int, skip: int, selector: str, *arguments: int | None) -> Seen:
        """Make a buffer; its bytes begin after some of its first page."""
        send = self._send
        with send.pool():
            fits = nbytes <= self.limits.max_alloc_bytes
            made = send(self._device, selector, *arguments) if fits else None
        if not made:
            raise DeviceError(
                f"metal: no memory for {nbytes:,} bytes on {self.name}, {self._room()}, and where "
                f"a buffer has {self.limits.max_alloc_bytes:,} at most.",
                hint="use a smaller --ctx, close other programs, or use --device cpu.",
            )
        return Seen(made, nbytes, send(made, "gpuAddress") + skip, send(made, "contents") + skip)

    def _failure(self, error: Object) -> DeviceError:
        code = self._send(error, "code")
        said = self._send.text(self._send(error, "localizedDescription"))
        if code == objc.COMMAND_BUFFER_ERROR_OUT_OF_MEMORY:
            return DeviceError(
                f"metal: out of memory on {self.name}, {self._room()}: {said}",
                hint="use a smaller --ctx, a model of fewer bits, or --device cpu.",
            )
        return DeviceError(
            f"metal: {self.name} stopped with error {code}: {said}",
            hint="run again; if it stays so, update macOS or iOS, or use --device cpu.",
        )

    def _room(self) -> str:
        free, total = self.memory()
        return f"where {free:,} of {total:,} bytes of the working set are free"


def open_metal() -> Metal:
    """Open the system's device.

    Raises:
        DeviceError: there is none.
    """
    runtime = objc.find_runtime()
    if isinstance(runtime, str):
        raise DeviceError(f"metal: {runtime}", hint="use --device auto, or --device cpu.")
    return Metal(runtime, shipped("shaders"))
