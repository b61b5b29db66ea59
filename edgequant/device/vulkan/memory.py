"""Buffers: where their memory lies, and mapped files as buffers."""

from ctypes import byref, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

from edgequant.device.memory import address_of
from edgequant.device.protocol import Place
from edgequant.device.vulkan import structs as vk
from edgequant.device.vulkan.api import OUT_OF_DEVICE_MEMORY, OUT_OF_HOST_MEMORY, check
from edgequant.device.vulkan.hardware import BUDGET
from edgequant.device.vulkan.logical import Logical
from edgequant.errors import DeviceError

_LOCAL, _VISIBLE, _COHERENT, _CACHED = 1, 2, 4, 8
_MAPPED = _VISIBLE | _COHERENT
# By place: flags a memory type must have, and its ranking among those that do (lower is better).
_PLACES: dict[Place, tuple[int, tuple[int, ...]]] = {
    Place.DEVICE: (_LOCAL, (_LOCAL,)),
    Place.UPLOAD: (_MAPPED, (_LOCAL | _MAPPED, _MAPPED)),
    Place.READBACK: (_MAPPED, (_MAPPED | _CACHED, _LOCAL | _MAPPED | _CACHED)),
}
_USAGE = 0x1 | 0x2 | 0x20 | 0x20000  # copied from and to, storage, has an address
_HOST_ALLOCATION = 0x80  # the kind of handle that is a pointer
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

    def adopt(self, content: memoryview) -> Block | None:
        """Make a buffer of mapped memory where it lies, or return None if the driver refuses.

        Memory is imported by pages: the buffer's address is that of the first byte asked for.
        """
        page = self._logical.hardware.import_alignment
        start = address_of(content)
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

    def _no_memory(self, nbytes: int) -> DeviceError:
        free, size = self.room()
        has = f"{size:,} bytes" if free is None else f"{free:,} of {size:,} bytes free"
        return DeviceError(
            f"vulkan: no memory for {nbytes:,} bytes on {self._logical.hardware.name}, "
            f"which has {has}.",
            hint="use a smaller --ctx, close other programs that use the GPU, or use --device cpu.",
        )
