"""Buffers: where their memory lies, how bytes get there and back, how mapped files are adopted."""

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from ctypes import byref, c_uint64, c_void_p, memmove, memset, string_at
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgequant.device.protocol import Adopted, Place
from edgequant.device.vulkan import structs as vk
from edgequant.device.vulkan.api import OUT_OF_DEVICE_MEMORY, OUT_OF_HOST_MEMORY, check
from edgequant.device.vulkan.hardware import BUDGET
from edgequant.device.vulkan.logical import Commands, Logical
from edgequant.errors import DeviceError

_LOCAL, _VISIBLE, _COHERENT, _CACHED = 1, 2, 4, 8
_MAPPED = _VISIBLE | _COHERENT
# By place: flags a memory type must have, and its ranking among those that do (lower is better).
_PLACES: dict[Place, tuple[int, tuple[int, ...]]] = {
    Place.DEVICE: (_LOCAL, (_LOCAL, _LOCAL | _CACHED, _LOCAL | _MAPPED)),
    Place.UPLOAD: (_MAPPED, (_LOCAL | _MAPPED, _MAPPED)),
    Place.READBACK: (_MAPPED, (_MAPPED | _CACHED, _LOCAL | _MAPPED | _CACHED)),
}
_USAGE = 0x1 | 0x2 | 0x20 | 0x20000  # copied from and to, storage, has an address
_HOST_ALLOCATION = 0x80  # the kind of handle that is a pointer
STAGING, STAGES = 16 << 20, 4  # bytes of a staging buffer, and how many
_IN_MEMORY = (OUT_OF_HOST_MEMORY, OUT_OF_DEVICE_MEMORY)


@dataclass(frozen=True)
class Block:
    """A buffer with memory of its own.

    Attributes:
        buffer: handle.
        memory: handle.
        nbytes: of the buffer.
        address: as kernels see it.
        host: where the host sees it; 0 if it does not.
    """

    buffer: int
    memory: int
    nbytes: int
    address: int
    host: int


@dataclass
class _Stage:
    """A staging buffer, what copies it, and when that is done."""

    block: Block
    commands: Commands
    ticket: int = 0


class Memory:
    """The buffers of one device."""

    def __init__(self, logical: Logical) -> None:
        self._logical = logical
        self._f, self._device = logical.f, logical.device
        self._types = vk.MemoryProperties()
        logical.hardware.functions.vkGetPhysicalDeviceMemoryProperties2(
            logical.hardware.handle, byref(self._types)
        )

    def room(self) -> tuple[int | None, int]:
        """Return the free bytes of the device, None if the driver does not say, and its bytes."""
        hardware = self._logical.hardware
        types, budget = vk.MemoryProperties(), vk.MemoryBudget()
        told = BUDGET in hardware.extensions
        vk.chain(types, *((budget,) if told else ()))
        hardware.functions.vkGetPhysicalDeviceMemoryProperties2(hardware.handle, byref(types))
        heap = self._types.types[self._ranked(Place.DEVICE, 2**32 - 1)[0]].heap
        free = max(0, budget.budget[heap] - budget.usage[heap]) if told else None
        return free, types.heaps[heap].nbytes

    def allocate(self, nbytes: int, place: Place) -> Block:
        """Return a buffer with undefined content."""
        hardware = self._logical.hardware
        if nbytes > hardware.limits.max_alloc_bytes:
            raise DeviceError(
                f"vulkan: a buffer of {nbytes:,} bytes was asked for; {hardware.name} allows "
                f"{hardware.limits.max_alloc_bytes:,}.",
                hint="use a smaller --ctx, or --device cpu.",
            )
        buffer, needs = self._buffer(nbytes)
        result = OUT_OF_DEVICE_MEMORY
        for kind in self._ranked(place, needs.types):
            memory = c_uint64()
            flags = vk.MemoryAllocateFlags(flags=2)
            info = vk.MemoryAllocateInfo(nbytes=needs.nbytes, type=kind)
            vk.chain(info, flags)
            result = self._f.vkAllocateMemory(self._device, byref(info), None, byref(memory))
            if result not in _IN_MEMORY:
                break
        if result:
            self._logical.destroy("Buffer", buffer)
            if result in _IN_MEMORY:
                raise self._no_memory(nbytes)
            check(result, f"allocating {nbytes:,} bytes")
        host = 0 if place is Place.DEVICE else self._map(memory.value)
        return self._bound(buffer, memory.value, nbytes, host)

    def free(self, block: Block) -> None:
        """Give a buffer and its memory back."""
        self._logical.destroy("Buffer", block.buffer)
        self._f.vkFreeMemory(self._device, block.memory, None)

    def zero(self, block: Block) -> None:
        """Fill a buffer with zeros."""
        if block.host:
            memset(block.host, 0, block.nbytes)
            return
        commands = Commands(self._logical)
        commands.begin(again=False)
        self._f.vkCmdFillBuffer(commands.handle, block.buffer, 0, 2**64 - 1, 0)
        commands.end()
        self._finish(commands)

    def write(self, block: Block, content: bytes | memoryview, offset: int) -> None:
        """Copy bytes into a buffer that nothing uses."""
        if block.host:
            memmove(block.host + offset, _address(content), len(content))
            return
        staging = self.allocate(max(1, len(content)), Place.UPLOAD)
        memmove(staging.host, _address(content), len(content))
        self._copy(staging, 0, block, offset, len(content))
        self.free(staging)

    def read(self, block: Block, nbytes: int, offset: int) -> bytes:
        """Return bytes of a buffer that nothing uses."""
        if block.host:
            return string_at(block.host + offset, nbytes)
        staging = self.allocate(max(1, nbytes), Place.READBACK)
        self._copy(block, offset, staging, 0, nbytes)
        content = string_at(staging.host, nbytes)
        self.free(staging)
        return content

    def adopt(self, content: memoryview) -> Block | None:
        """Make a buffer of mapped memory where it lies, or return None if the driver refuses.

        Memory is imported by pages: the buffer's address is that of the first byte asked for.
        """
        page = self._logical.hardware.import_alignment
        start = _address(content)
        skip = start % page
        span = -(-(skip + content.nbytes) // page) * page
        properties = vk.HostPointerProperties()
        result = self._f.vkGetMemoryHostPointerPropertiesEXT(
            self._device, _HOST_ALLOCATION, start - skip, byref(properties)
        )
        if result or not properties.types:
            return None
        buffer, needs = self._buffer(span, _HOST_ALLOCATION)
        memory = c_uint64()
        source = vk.ImportHostPointer(handle=_HOST_ALLOCATION, pointer=start - skip)
        flags = vk.MemoryAllocateFlags(flags=2)
        usable = needs.types & properties.types
        info = vk.MemoryAllocateInfo(nbytes=span, type=(usable & -usable).bit_length() - 1)
        vk.chain(info, flags, source)
        if (
            not usable
            or needs.nbytes > span
            or self._f.vkAllocateMemory(self._device, byref(info), None, byref(memory))
        ):
            self._logical.destroy("Buffer", buffer)
            return None
        block = self._bound(buffer, memory.value, span, 0)
        return Block(block.buffer, block.memory, content.nbytes, block.address + skip, start)

    def upload(self, blocks: Sequence[tuple[Block, memoryview]], progress: Adopted) -> None:
        """Copy mapped files into buffers: threads fill some staging buffers, others are drained."""
        stages = [_Stage(self.allocate(STAGING, Place.UPLOAD), Commands(self._logical))]
        try:
            while len(stages) < STAGES:
                block = self.allocate(STAGING, Place.UPLOAD)
                stages.append(_Stage(block, Commands(self._logical)))
            with ThreadPoolExecutor(STAGES) as threads:
                self._stream(blocks, stages, threads, progress)
        finally:
            self._logical.idle()
            for stage in stages:
                stage.commands.free()
                self.free(stage.block)

    def _stream(
        self,
        blocks: Sequence[tuple[Block, memoryview]],
        stages: Sequence["_Stage"],
        threads: ThreadPoolExecutor,
        progress: Adopted,
    ) -> None:
        """Send every piece through the next staging buffer in turn."""
        pieces = (
            (target, _address(content) + start, start, min(STAGING, content.nbytes - start))
            for target, content in blocks
            for start in range(0, content.nbytes, STAGING)
        )
        filling: deque[tuple[Future[int], _Stage, Block, int, int]] = deque()

        def drain() -> None:
            filled, stage, target, offset, nbytes = filling.popleft()
            filled.result()
            self._encode(stage.commands, stage.block, 0, target, offset, nbytes)
            stage.ticket = self._logical.submit(stage.commands)
            progress(nbytes)

        for number, (target, source, offset, nbytes) in enumerate(pieces):
            if len(filling) == len(stages):
                drain()
            stage = stages[number % len(stages)]
            self._logical.wait(stage.ticket)
            filled = threads.submit(memmove, stage.block.host, source, nbytes)
            filling.append((filled, stage, target, offset, nbytes))
        while filling:
            drain()
        self._logical.wait_all()

    def _buffer(self, nbytes: int, imported: int = 0) -> tuple[int, Any]:
        info = vk.BufferCreateInfo(nbytes=-(-max(nbytes, 1) // 16) * 16, usage=_USAGE)
        source = vk.ExternalMemoryBuffer(handles=imported)
        vk.chain(info, *((source,) if imported else ()))
        buffer = self._logical.create("Buffer", info)
        needs = vk.MemoryRequirements()
        self._f.vkGetBufferMemoryRequirements(self._device, buffer, byref(needs))
        return buffer, needs

    def _bound(self, buffer: int, memory: int, nbytes: int, host: int) -> Block:
        check(self._f.vkBindBufferMemory(self._device, buffer, memory, 0), "binding memory")
        info = vk.BufferDeviceAddressInfo(buffer=buffer)
        address = self._f.vkGetBufferDeviceAddress(self._device, byref(info))
        return Block(buffer, memory, nbytes, address, host)

    def _map(self, memory: int) -> int:
        pointer = c_void_p()
        check(
            self._f.vkMapMemory(self._device, memory, 0, 2**64 - 1, 0, byref(pointer)),
            "mapping memory",
        )
        return pointer.value or 0

    def _ranked(self, place: Place, allowed: int) -> list[int]:
        """Return the memory types that serve a place, best first."""
        needed, ranking = _PLACES[place]
        flags = [kind.flags for kind in self._types.types[: self._types.type_count]]
        able = [
            i for i, f in enumerate(flags) if allowed >> i & 1 and f & needed == needed and f < 16
        ]
        order = {f: rank for rank, f in enumerate(ranking)}
        return sorted(able, key=lambda i: order.get(flags[i], len(order)))

    def _finish(self, commands: Commands) -> None:
        self._logical.wait(self._logical.submit(commands))
        commands.free()

    def _copy(self, source: Block, start: int, target: Block, offset: int, nbytes: int) -> None:
        if nbytes:
            commands = Commands(self._logical)
            self._encode(commands, source, start, target, offset, nbytes)
            self._finish(commands)

    def _encode(
        self, commands: Commands, source: Block, start: int, target: Block, offset: int, nbytes: int
    ) -> None:
        region = vk.BufferCopy(source=start, target=offset, nbytes=nbytes)
        commands.begin(again=False)
        self._f.vkCmdCopyBuffer(commands.handle, source.buffer, target.buffer, 1, byref(region))
        commands.end()

    def _no_memory(self, nbytes: int) -> DeviceError:
        free, size = self.room()
        has = f"{size:,} bytes" if free is None else f"{free:,} of {size:,} bytes free"
        return DeviceError(
            f"vulkan: no memory for {nbytes:,} bytes on {self._logical.hardware.name}, "
            f"which has {has}.",
            hint="use a smaller --ctx, close other programs that use the GPU, or use --device cpu.",
        )


def _address(content: bytes | memoryview) -> int:
    """Return where bytes lie in memory."""
    return int(np.frombuffer(content, np.uint8).ctypes.data) if len(content) else 0
