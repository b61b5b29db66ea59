"""Vulkan's structures, as far as this host uses them; their layouts are those of vulkan_core.h.

A structure is a line of `field:letter`, a number behind the letter making it an array; names are
Vulkan's own without Vk and p. Fields that nothing here reads are arrays that keep the place.
"""

import ctypes
from ctypes import Array, Structure, addressof
from itertools import pairwise
from typing import Any, ClassVar

_TYPES: dict[str, Any] = {
    "b": ctypes.c_ubyte,
    "c": ctypes.c_char,
    "f": ctypes.c_float,
    "i": ctypes.c_int32,
    "I": ctypes.c_uint32,
    "p": ctypes.c_void_p,
    "Q": ctypes.c_uint64,  # also handles that are no pointers
    "s": ctypes.c_char_p,
    "z": ctypes.c_size_t,
}


class Struct(Structure):
    """A structure; one given for a pointer, or an array, is pointed to and kept as long as this."""

    def __init__(self, **fields: Any) -> None:
        bases = (vars(base).get("_fields_", ()) for base in type(self).__mro__)
        kinds = {field[0]: field[1] for fields_of in bases for field in fields_of}
        self._kept = [v for k, v in fields.items() if kinds[k] is ctypes.c_void_p]
        for name, value in fields.items():
            pointed = kinds[name] is ctypes.c_void_p and isinstance(value, (Structure, Array))
            setattr(self, name, addressof(value) if pointed else value)


class Info(Struct):
    """A structure that starts with its type and the next one of its chain."""

    TYPE = 0
    _fields_: ClassVar[Any] = (("sType", ctypes.c_uint32), ("pNext", ctypes.c_void_p))

    def __init__(self, **fields: Any) -> None:
        super().__init__(sType=self.TYPE, **fields)


def chain(*infos: Info) -> None:
    """Let each structure point to the next; the caller keeps them alive."""
    for info, following in pairwise(infos):
        info.pNext = addressof(following)


def _fields(parts: tuple[str | tuple[str, Any], ...]) -> list[tuple[str, Any]]:
    fields = []
    for part in parts:
        if not isinstance(part, str):
            fields.append(part)
            continue
        for word in part.split():
            name, _, kind = word.partition(":")
            letter, count = _TYPES[kind[0]], kind[1:]
            fields.append((name, letter * int(count) if count else letter))
    return fields


def _struct(*parts: str | tuple[str, Any]) -> Any:
    return type("Struct", (Struct,), {"_fields_": _fields(parts)})


def _info(kind: int, *parts: str | tuple[str, Any]) -> Any:
    return type("Info", (Info,), {"TYPE": kind, "_fields_": _fields(parts)})


ApplicationInfo = _info(0, "name:s version:I engine:s engine_version:I api:I")
InstanceCreateInfo = _info(
    1, "flags:I application:p layer_count:I layers:p extension_count:I extensions:p"
)
DeviceQueueCreateInfo = _info(2, "flags:I family:I count:I priorities:p")
DeviceCreateInfo = _info(
    3,
    "flags:I queue_count:I queues:p layer_count:I layers:p extension_count:I extensions:p",
    "features:p",
)

ExtensionProperties = _struct("name:c256 version:I")
QueueFamilyProperties = _struct("flags:I count:I timestamp_bits:I grain:I3")
DeviceLimits = _struct(
    "_0:I8 push_bytes:I _1:I45 shared_bytes:I grid:I3 workgroup:I _2:I47 timestamp_ns:f _3:Q9"
)
DeviceProperties = _info(
    1000059001,
    "api:I driver_version:I vendor:I device:I kind:I name:c256 cache_uuid:b16",
    ("limits", DeviceLimits),
    "sparse:I5",
)
Properties11 = _info(
    50, "device_uuid:b16 driver_uuid:b16 luid:I4 subgroup:I _0:I8 max_alloc_bytes:Q"
)
Properties12 = _info(52, "driver:I driver_name:c256 driver_info:c256 _0:I51")
Properties13 = _info(
    54,
    "subgroup_min:I subgroup_max:I workgroup_subgroups:I subgroup_stages:I _0:I9",
    "dot_packed_signed:I _1:I34 max_buffer_bytes:Q",
)
ExternalMemoryHostProperties = _info(1000178002, "alignment:Q")
CooperativeMatrixProperties = _info(1000506001, "m:I n:I k:I a:I b:I c:I r:I saturating:I scope:I")

Features10 = _info(1000059000, "bits:I55")
Features11 = _info(49, "bits:I12")
Features12 = _info(51, "bits:I47")
Features13 = _info(53, "bits:I15")
FeaturesCooperativeMatrix = _info(1000506000, "bits:I2")
FEATURES: dict[type[Info], dict[str, int]] = {  # names of bits
    Features10: {"shaderInt64": 40, "shaderInt16": 41},
    Features11: {
        "storageBuffer16BitAccess": 0,
        "uniformAndStorageBuffer16BitAccess": 1,
        "storagePushConstant16": 2,
    },
    Features12: {
        "storageBuffer8BitAccess": 2,
        "uniformAndStorageBuffer8BitAccess": 3,
        "storagePushConstant8": 4,
        "shaderFloat16": 7,
        "shaderInt8": 8,
        "scalarBlockLayout": 31,
        "shaderSubgroupExtendedTypes": 34,
        "timelineSemaphore": 37,
        "bufferDeviceAddress": 38,
        "vulkanMemoryModel": 41,
        "vulkanMemoryModelDeviceScope": 42,
    },
    Features13: {
        "subgroupSizeControl": 7,
        "computeFullSubgroups": 8,
        "shaderIntegerDotProduct": 13,
        "maintenance4": 14,
    },
    FeaturesCooperativeMatrix: {"cooperativeMatrix": 0},
}

MemoryType = _struct("flags:I heap:I")
MemoryHeap = _struct("nbytes:Q flags:I")
MemoryProperties = _info(
    1000059006,
    "type_count:I",
    ("types", MemoryType * 32),
    "heap_count:I",
    ("heaps", MemoryHeap * 16),
)
MemoryBudget = _info(1000237000, "budget:Q16 usage:Q16")
MemoryRequirements = _struct("nbytes:Q alignment:Q types:I")
MemoryAllocateInfo = _info(5, "nbytes:Q type:I")
MemoryAllocateFlags = _info(1000060000, "flags:I mask:I")
ImportHostPointer = _info(1000178000, "handle:I pointer:p")
HostPointerProperties = _info(1000178001, "types:I")
ExternalMemoryBuffer = _info(1000072000, "handles:I")
BufferCreateInfo = _info(12, "flags:I nbytes:Q usage:I sharing:I family_count:I families:p")
BufferDeviceAddressInfo = _info(1000244001, "buffer:Q")
BufferCopy = _struct("source:Q target:Q nbytes:Q")

ShaderModuleCreateInfo = _info(16, "flags:I nbytes:z code:s")
SpecializationMapEntry = _struct("number:I offset:I nbytes:z")
SpecializationInfo = _struct("count:I entries:p nbytes:z values:p")
RequiredSubgroupSize = _info(1000225001, "lanes:I")
ShaderStageCreateInfo = _info(18, "flags:I stage:I module:Q name:s specialization:p")
ComputePipelineCreateInfo = _info(
    29, "flags:I", ("stage", ShaderStageCreateInfo), "layout:Q base:Q base_index:i"
)
PushConstantRange = _struct("stages:I offset:I nbytes:I")
PipelineLayoutCreateInfo = _info(30, "flags:I set_count:I sets:p range_count:I ranges:p")
PipelineCacheCreateInfo = _info(17, "flags:I nbytes:z content:s")

CommandPoolCreateInfo = _info(39, "flags:I family:I")
CommandBufferAllocateInfo = _info(40, "pool:Q level:I count:I")
CommandBufferBeginInfo = _info(42, "flags:I inheritance:p")
MemoryBarrier = _info(46, "source:I target:I")
QueryPoolCreateInfo = _info(11, "flags:I kind:I count:I statistics:I")
SemaphoreType = _info(1000207002, "kind:I initial:Q")
SemaphoreCreateInfo = _info(9, "flags:I")
SemaphoreWaitInfo = _info(1000207004, "flags:I count:I semaphores:p values:p")
TimelineSubmitInfo = _info(1000207003, "wait_count:I waits:p signal_count:I signals:p")
SubmitInfo = _info(
    4,
    "wait_count:I waits:p wait_stages:p command_count:I commands:p signal_count:I signals:p",
)
