"""The Vulkan host: implements `Gpu` with buffers that have addresses, and recordings."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import string_at
from itertools import count
from pathlib import Path
from typing import TypeVar

from edgequant.device.kept import cache_folder, notes_file, shipped_kernels
from edgequant.device.protocol import Adopted, Buffer, Place, Recording, Ticket
from edgequant.device.vulkan.hardware import Hardware, found
from edgequant.device.vulkan.logical import Logical
from edgequant.device.vulkan.memory import Block, Memory
from edgequant.device.vulkan.pipelines import Pipelines
from edgequant.device.vulkan.recording import Encoded
from edgequant.device.vulkan.transfer import Transfer
from edgequant.errors import DeviceError
from edgequant.graph.launch import Dispatch

T = TypeVar("T")


class VulkanGpu:
    """A Vulkan device, opened."""

    def __init__(
        self, hardware: Hardware, *, shaders: Path | None = None, cache: Path | None = None
    ) -> None:
        if hardware.lacking:
            raise DeviceError(
                f"vulkan: {hardware.name} lacks {', '.join(hardware.lacking)}.",
                hint="update the graphics driver, or use --device cpu.",
            )
        self.hardware = hardware
        major, minor = hardware.version
        self.limits = hardware.limits
        self.in_place = hardware.adopts_in_place
        self.description = f"{hardware.name}, {hardware.driver}, Vulkan {major}.{minor}"
        self._logical = Logical(hardware)
        self._memory = Memory(self._logical)
        self._transfer = Transfer(self._logical, self._memory)
        self._pipelines = Pipelines(
            self._logical, shaders or shipped_kernels("spirv"), cache or cache_folder()
        )
        self._numbers = count(1)
        self._blocks: dict[Buffer, Block] = {}
        self._encoded: dict[Recording, Encoded] = {}
        self._timed: dict[Ticket, Encoded] = {}

    def memory(self) -> tuple[int, int] | None:
        """Return the free bytes of the device's memory and all; None if the driver does not say."""
        free, total = self._memory.room()
        return None if free is None else (free, total)

    def adopt(self, ranges: Sequence[memoryview], progress: Adopted) -> Sequence[Buffer]:
        """Make ranges of mapped files readable by kernels; see `Gpu`."""
        blocks: list[Block] = []

        def make(content: memoryview) -> tuple[Block, memoryview] | None:
            """Make the next buffer; return it if it is to be filled."""
            block = self._memory.adopt(content) if self.in_place and content.nbytes else None
            if block is not None:
                progress(content.nbytes)
            blocks.append(block or self._memory.allocate(content.nbytes, Place.DEVICE))
            return None if block else (blocks[-1], content)

        try:
            # To make a buffer takes nearly as long as to fill it: the next is made meanwhile, as
            # far as the driver does both. (NVIDIA's 580 lets submissions wait for most of it.)
            with ThreadPoolExecutor(1) as ahead:
                made = [ahead.submit(make, content) for content in ranges]
                try:
                    self._transfer.upload(filter(None, (m.result() for m in made)), progress)
                finally:
                    ahead.shutdown(cancel_futures=True)
        except BaseException:
            for block in blocks:
                self._memory.free(block)
            raise
        return [self._keep(self._blocks, block) for block in blocks]

    def alloc(self, nbytes: int, place: Place = Place.DEVICE) -> Buffer:
        """Return a zeroed buffer; see `Gpu`."""
        block = self._memory.allocate(nbytes, place)
        self._transfer.zero(block)
        return self._keep(self._blocks, block)

    def address(self, buffer: Buffer) -> int:
        """Return the buffer's address, as kernels see it."""
        return self._blocks[buffer].address

    def free(self, buffer: Buffer) -> None:
        """Give a buffer back."""
        self._memory.free(self._blocks.pop(buffer))

    def prepare(self, kernels: Sequence[tuple[str, tuple[int, ...]]]) -> None:
        """Start to compile kernels; see `Gpu`."""
        self._pipelines.prepare(kernels)

    def record(self, dispatches: Sequence[Dispatch], *, timed: bool = False) -> Recording:
        """Turn dispatches into a recording; see `Gpu`."""
        encoded = Encoded(self._logical, self._pipelines, dispatches, timed=timed)
        return self._keep(self._encoded, encoded)

    def submit(self, recording: Recording) -> Ticket:
        """Start a recording."""
        encoded = self._encoded[recording]
        ticket = self._logical.submit(encoded.commands)
        if encoded.timed:
            self._timed[ticket] = encoded
        return ticket

    def wait(self, ticket: Ticket) -> Sequence[float]:
        """Wait until it is done; seconds of each dispatch of a timed recording."""
        self._logical.wait(ticket)
        encoded = self._timed.pop(ticket, None)
        return () if encoded is None else encoded.seconds()

    def discard(self, recording: Recording) -> None:
        """Forget a recording."""
        self._encoded.pop(recording).free()

    def write(self, buffer: Buffer, content: bytes | memoryview, offset: int = 0) -> None:
        """Copy bytes into a buffer."""
        self._logical.wait_all()
        self._transfer.write(self._within(buffer, len(content), offset), content, offset)

    def read(self, buffer: Buffer, nbytes: int, offset: int = 0) -> bytes:
        """Return bytes of a buffer."""
        self._logical.wait_all()
        return self._transfer.read(self._within(buffer, nbytes, offset), nbytes, offset)

    def peek(self, buffer: Buffer, nbytes: int, offset: int = 0) -> bytes:
        """Return bytes of a READBACK buffer as they are now."""
        return string_at(self._within(buffer, nbytes, offset).host + offset, nbytes)

    def close(self) -> None:
        """Give everything back, also on a lost device."""
        self._logical.idle()
        for encoded in self._encoded.values():
            encoded.free()
        for block in self._blocks.values():
            self._memory.free(block)
        self._encoded, self._blocks, self._timed = {}, {}, {}
        self._transfer.close()
        self._pipelines.close()
        self._logical.close()

    def _keep(self, table: dict[int, T], item: T) -> int:
        number = next(self._numbers)
        table[number] = item
        return number

    def _within(self, buffer: Buffer, nbytes: int, offset: int) -> Block:
        block = self._blocks[buffer]
        if not 0 <= offset <= offset + nbytes <= block.nbytes:
            raise ValueError(f"bytes {offset} to {offset + nbytes} of a buffer of {block.nbytes}")
        return block


def notes_of(hardware: Hardware, shaders: Path | None = None, cache: Path | None = None) -> Path:
    """Return where to keep what is known of a device with its driver and our kernels."""
    device = f"{hardware.uuid}-{hardware.driver_key}"
    return notes_file(device, shaders or shipped_kernels("spirv"), cache)


def open_gpu(index: str = "", *, shaders: Path | None = None) -> VulkanGpu:
    """Open the device with the number `index`; "" is the first that can be used.

    Raises:
        DeviceError: there is none of that number, or it lacks what we need.
    """
    devices = found() or ()
    known = "; ".join(f"vulkan:{i} is {h.name}" for i, h in enumerate(devices)) or "there is none"
    number = int(index) if index.isdecimal() else 0 if not index else len(devices)
    if number >= len(devices):
        raise DeviceError(
            f"vulkan:{index}: no such device; {known}.", hint="see `edgequant devices`."
        )
    usable = [hardware for hardware in devices if not hardware.lacking]
    return VulkanGpu(usable[0] if usable and not index else devices[number], shaders=shaders)
