"""A table of Vulkan's functions over nothing: devices as described, calls that succeed or fail.

It stands where the library and the driver would, so that what drivers rarely do (run out of memory,
lose the device, refuse a shader) can be met on any machine. No kernel runs.
"""

# ruff: noqa: N802 - the names are Vulkan's

from collections.abc import Callable, Iterator
from ctypes import POINTER, addressof, c_char_p, c_uint64, cast
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from edgequant.device.vulkan import structs as vk
from edgequant.device.vulkan.api import PROTOTYPES

EVERYTHING = frozenset(name for names in vk.FEATURES.values() for name in names)
GIB = 1 << 30


@dataclass(frozen=True)
class FakeDevice:
    """What one device says of itself."""

    name: str = "Fake 9000"
    kind: int = 2  # a discrete GPU
    api: tuple[int, int] = (1, 3)
    features: frozenset[str] = EVERYTHING
    extensions: tuple[str, ...] = (
        "VK_KHR_cooperative_matrix",
        "VK_EXT_memory_budget",
        "VK_EXT_external_memory_host",
    )
    subgroups: tuple[int, int, int] = (32, 32, 32)  # as it runs, at least, at most
    matrices: tuple[tuple[int, int, int], ...] = ((8, 8, 8), (16, 8, 16))
    families: tuple[tuple[int, int], ...] = ((1, 64), (2, 64), (3, 64))  # flags, timestamp bits
    types: tuple[tuple[int, int], ...] = ((1, 0), (6, 1), (7, 0), (14, 1))  # flags, heap
    memory: int = 8 * GIB
    push_bytes: int = 128


@dataclass
class FakeVulkan:
    """Stands for `Library`, and for `Functions` of an instance and of a device.

    Attributes:
        devices: of the machine.
        faults: results of functions by name: of every call, or of the next calls; 0 goes through.
        calls: names of the functions called.
        asked: extensions and features that the last device was made with.
        live: what was made and not destroyed, by handle.
    """

    devices: tuple[FakeDevice, ...] = ()
    faults: dict[str, int | list[int]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)
    live: dict[int, str] = field(default_factory=dict)
    _memory: dict[int, Any] = field(default_factory=dict)
    _sizes: dict[int, int] = field(default_factory=dict)
    _handles: Iterator[int] = field(
        default_factory=lambda: count(1001)
    )  # kernels compile on threads
    instance_flags: int = 0

    def functions(self, instance: int) -> "FakeVulkan":
        return self

    def of_device(self, device: int) -> "FakeVulkan":
        return self

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in PROTOTYPES:
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            self.calls.append(name)
            fault = self.faults.get(name, 0)
            if isinstance(fault, list):
                fault = fault.pop(0) if fault else 0
            if fault:
                return fault
            if name.startswith("vkDestroy") and name != "vkDestroyInstance":
                del self.live[arguments[0 if name == "vkDestroyDevice" else 1]]
            own = vars(FakeVulkan).get(f"_{name}")
            if own is not None:
                return own(self, *arguments) or 0
            if name.startswith("vkCreate"):
                arguments[-1]._obj.value = self._make(name.removeprefix("vkCreate"))
            return 0

        return call

    def _make(self, kind: str) -> int:
        handle = next(self._handles)
        self.live[handle] = kind
        return handle

    # What is in the machine

    def _vkCreateInstance(self, info: Any, _: None, instance: Any) -> None:
        self.instance_flags = info._obj.flags
        instance._obj.value = 1

    def _vkEnumerateInstanceExtensionProperties(self, layer: None, count: Any, items: Any) -> None:
        count._obj.value = 1
        if items:
            items[0].name = b"VK_KHR_portability_enumeration"

    def _vkEnumeratePhysicalDevices(self, instance: int, count: Any, items: Any) -> None:
        count._obj.value = len(self.devices)
        for i in range(len(self.devices) if items else 0):
            items[i] = i + 1

    def _vkEnumerateDeviceExtensionProperties(
        self, handle: int, layer: None, count: Any, items: Any
    ) -> None:
        names = self.devices[handle - 1].extensions
        count._obj.value = len(names)
        for item, name in zip(items or (), names, strict=False):
            item.name = name.encode()

    def _vkGetPhysicalDeviceProperties2(self, handle: int, first: Any) -> None:
        device = self.devices[handle - 1]
        major, minor = device.api
        lanes, least, most = device.subgroups
        for info in _chained(first):
            if info.TYPE == vk.DeviceProperties.TYPE:
                info.api, info.kind = major << 22 | minor << 12, device.kind
                info.name, info.driver_version = device.name.encode(), 7
                info.limits.push_bytes, info.limits.shared_bytes = device.push_bytes, 49152
                info.limits.workgroup, info.limits.timestamp_ns = 1024, 2.0
                info.limits.grid = (65535,) * 3
            elif info.TYPE == vk.Properties11.TYPE:
                info.subgroup, info.max_alloc_bytes = lanes, 4 * GIB
                info.device_uuid = tuple(range(16))
            elif info.TYPE == vk.Properties12.TYPE:
                info.driver_name, info.driver_info = b"fake", b"1.2.3"
            elif info.TYPE == vk.Properties13.TYPE:
                info.subgroup_min, info.subgroup_max, info.subgroup_stages = least, most, 0x20
                info.workgroup_subgroups, info.max_buffer_bytes = 64, 2 * GIB
                info.dot_packed_signed = 1
            else:
                info.alignment = 4096

    def _vkGetPhysicalDeviceFeatures2(self, handle: int, first: Any) -> None:
        present = self.devices[handle - 1].features
        for info in _chained(first):
            for name, bit in vk.FEATURES[type(info)].items():
                info.bits[bit] = name in present

    def _vkGetPhysicalDeviceQueueFamilyProperties(
        self, handle: int, count: Any, items: Any
    ) -> None:
        families = self.devices[handle - 1].families
        count._obj.value = len(families)
        for item, (flags, bits) in zip(items or (), families, strict=False):
            item.flags, item.timestamp_bits = flags, bits

    def _vkGetPhysicalDeviceMemoryProperties2(self, handle: int, first: Any) -> None:
        device = self.devices[handle - 1]
        for info in _chained(first):
            if info.TYPE == vk.MemoryBudget.TYPE:
                info.budget[0], info.usage[0] = device.memory - GIB, 3 * GIB
                continue
            info.type_count, info.heap_count = len(device.types), 2
            for item, (flags, heap) in zip(info.types, device.types, strict=False):
                item.flags, item.heap = flags, heap
            info.heaps[0].nbytes, info.heaps[0].flags = device.memory, 1
            info.heaps[1].nbytes = 64 * GIB

    def _vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR(
        self, handle: int, count: Any, items: Any
    ) -> None:
        shapes = self.devices[handle - 1].matrices
        count._obj.value = len(shapes)
        for item, shape in zip(items or (), shapes, strict=False):
            item.m, item.n, item.k = shape
            item.c, item.r, item.scope = 1, 1, 3

    # What is made on a device

    def _vkCreateDevice(self, handle: int, info: Any, _: None, device: Any) -> None:
        names = cast(info._obj.extensions, POINTER(c_char_p))
        self.asked = {names[i].decode() for i in range(info._obj.extension_count)}
        for features in _chained(info)[1:]:
            bits = vk.FEATURES[type(features)]
            assert sum(features.bits) == sum(features.bits[bit] for bit in bits.values())
            self.asked |= {name for name, bit in bits.items() if features.bits[bit]}
        device._obj.value = self._make("Device")

    def _vkAllocateCommandBuffers(self, device: int, info: Any, buffers: Any) -> None:
        buffers[0] = self._make("CommandBuffer")

    def _vkFreeCommandBuffers(self, device: int, pool: int, count: int, buffers: Any) -> None:
        del self.live[buffers[0]]

    def _vkCreateComputePipelines(
        self, device: int, cache: int, count: int, info: Any, _: None, pipeline: Any
    ) -> None:
        pipeline._obj.value = self._make("Pipeline")

    def _vkCreateBuffer(self, device: int, info: Any, _: None, buffer: Any) -> None:
        buffer._obj.value = self._make("Buffer")
        self._sizes[buffer._obj.value] = info._obj.nbytes

    def _vkGetBufferMemoryRequirements(self, device: int, buffer: int, needs: Any) -> None:
        needs._obj.nbytes, needs._obj.types = self._sizes[buffer], 0b1111

    def _vkGetMemoryHostPointerPropertiesEXT(
        self, device: int, handle: int, pointer: int, properties: Any
    ) -> None:
        properties._obj.types = 0b1110

    def _vkAllocateMemory(self, device: int, info: Any, _: None, memory: Any) -> None:
        memory._obj.value = self._make(f"Memory of type {info._obj.type}")
        self._memory[memory._obj.value] = (c_uint64 * -(-info._obj.nbytes // 8))()

    def _vkFreeMemory(self, device: int, memory: int, _: None) -> None:
        del self.live[memory.value if hasattr(memory, "value") else memory]

    def _vkMapMemory(
        self, device: int, memory: int, start: int, nbytes: int, flags: int, pointer: Any
    ) -> None:
        pointer._obj.value = addressof(self._memory[memory])

    def _vkGetQueryPoolResults(
        self, device: int, pool: int, first: int, count: int, nbytes: int, stamps: Any, *_: int
    ) -> None:
        stamps[:] = [1000 * i * i for i in range(count)]

    def _vkGetPipelineCacheData(self, device: int, cache: int, nbytes: Any, content: Any) -> None:
        nbytes._obj.value = 10
        if content is not None:
            content[:10] = b"0123456789"


_KINDS = {
    kind.TYPE: kind
    for kind in vars(vk).values()
    if isinstance(kind, type) and issubclass(kind, vk.Info) and kind is not vk.Info
}


def _chained(first: Any) -> list[Any]:
    """Return the structures of a chain, as their types say."""
    infos = [first._obj]
    while infos[-1].pNext:
        kind = cast(infos[-1].pNext, POINTER(vk.Info)).contents.sType
        infos.append(cast(infos[-1].pNext, POINTER(_KINDS[kind])).contents)
    return infos


def hardware(device: FakeDevice | None = None) -> tuple[Any, FakeVulkan]:
    """Return a device as the host sees it, and the fake behind it."""
    from edgequant.device.vulkan.hardware import enumerate_devices

    fake = FakeVulkan((device or FakeDevice(),))
    return enumerate_devices(fake, 1)[0], fake
