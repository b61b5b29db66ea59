"""Vulkan's structures, as far as this host uses them; their layouts are those of vulkan_core.h.

Fields that nothing here names are arrays that keep the place. Feature structures are rows of bits;
`FEATURES` says which bit has which name.
"""

# ruff: noqa: D101 - the names are Vulkan's own, without Vk

from ctypes import (
    POINTER,
    Structure,
    addressof,
    c_char,
    c_char_p,
    c_float,
    c_int32,
    c_size_t,
    c_ubyte,
    c_uint32,
    c_uint64,
    c_void_p,
)
from itertools import pairwise
from typing import Any, ClassVar

U32, U64, PTR, UUID = c_uint32, c_uint64, c_void_p, c_ubyte * 16


class Info(Structure):
    """A structure that starts with its type and the next one of its chain."""

    _fields_: ClassVar[Any] = (("sType", U32), ("pNext", PTR))
    TYPE: ClassVar[int] = 0

    def __init__(self, **fields: Any) -> None:
        super().__init__(sType=self.TYPE, **fields)


def chain(*infos: Info) -> None:
    """Let each structure point to the next; the caller keeps them alive."""
    for info, following in pairwise(infos):
        info.pNext = addressof(following)


class ApplicationInfo(Info):
    TYPE = 0
    _fields_ = (("name", c_char_p), ("v", U32), ("engine", c_char_p), ("e", U32), ("api", U32))


class InstanceCreateInfo(Info):
    TYPE = 1
    _fields_ = (
        ("flags", U32),
        ("application", POINTER(ApplicationInfo)),
        ("layer_count", U32),
        ("layers", POINTER(c_char_p)),
        ("extension_count", U32),
        ("extensions", POINTER(c_char_p)),
    )


class DeviceQueueCreateInfo(Info):
    TYPE = 2
    _fields_ = (("flags", U32), ("family", U32), ("count", U32), ("priorities", POINTER(c_float)))


class DeviceCreateInfo(Info):
    TYPE = 3
    _fields_ = (
        ("flags", U32),
        ("queue_count", U32),
        ("queues", POINTER(DeviceQueueCreateInfo)),
        ("layer_count", U32),
        ("layers", POINTER(c_char_p)),
        ("extension_count", U32),
        ("extensions", POINTER(c_char_p)),
        ("features", PTR),
    )


class ExtensionProperties(Structure):
    _fields_ = (("name", c_char * 256), ("version", U32))


class QueueFamilyProperties(Structure):
    _fields_ = (("flags", U32), ("count", U32), ("timestamp_bits", U32), ("grain", U32 * 3))


class DeviceLimits(Structure):
    _fields_ = (
        ("_0", U32 * 8),
        ("push_bytes", U32),
        ("_1", U32 * 45),
        ("shared_bytes", U32),
        ("grid", U32 * 3),
        ("workgroup", U32),
        ("_2", U32 * 47),
        ("timestamp_ns", c_float),
        ("_3", U64 * 9),
    )


class DeviceProperties(Info):
    TYPE = 1000059001
    _fields_ = (
        ("api", U32),
        ("driver_version", U32),
        ("vendor", U32),
        ("device", U32),
        ("kind", U32),
        ("name", c_char * 256),
        ("cache_uuid", UUID),
        ("_pad", U32),
        ("limits", DeviceLimits),
        ("sparse", U32 * 5),
    )


class Properties11(Info):
    TYPE = 50
    _fields_ = (
        ("device_uuid", UUID),
        ("driver_uuid", UUID),
        ("luid", U32 * 4),
        ("subgroup", U32),
        ("_0", U32 * 8),
        ("max_alloc_bytes", U64),
    )


class Properties12(Info):
    TYPE = 52
    _fields_ = (
        ("driver", U32),
        ("driver_name", c_char * 256),
        ("driver_info", c_char * 256),
        ("_0", U32 * 51),
    )


class Properties13(Info):
    TYPE = 54
    _fields_ = (
        ("subgroup_min", U32),
        ("subgroup_max", U32),
        ("workgroup_subgroups", U32),
        ("subgroup_stages", U32),
        ("_1", U32 * 9),
        ("dot_packed_signed", U32),
        ("_2", U32 * 34),
        ("max_buffer_bytes", U64),
    )


class ExternalMemoryHostProperties(Info):
    TYPE = 1000178002
    _fields_ = (("alignment", U64),)


class CooperativeMatrixProperties(Info):
    TYPE = 1000506001
    _fields_ = tuple((name, U32) for name in ("m", "n", "k", "a", "b", "c", "r", "s", "scope"))


class Features10(Info):
    TYPE = 1000059000
    _fields_ = (("bits", U32 * 55),)


class Features11(Info):
    TYPE = 49
    _fields_ = (("bits", U32 * 12),)


class Features12(Info):
    TYPE = 51
    _fields_ = (("bits", U32 * 47),)


class Features13(Info):
    TYPE = 53
    _fields_ = (("bits", U32 * 15),)


class FeaturesCooperativeMatrix(Info):
    TYPE = 1000506000
    _fields_ = (("bits", U32 * 2),)


FEATURES: dict[type[Info], dict[str, int]] = {
    Features10: {"shaderInt64": 40, "shaderInt16": 41},
    Features11: {
        "storageBuffer16BitAccess": 0,
        "uniformAndStorageBuffer16BitAccess": 1,
        "variablePointersStorageBuffer": 7,
        "variablePointers": 8,
    },
    Features12: {
        "storageBuffer8BitAccess": 2,
        "uniformAndStorageBuffer8BitAccess": 3,
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


class MemoryType(Structure):
    _fields_ = (("flags", U32), ("heap", U32))


class MemoryHeap(Structure):
    _fields_ = (("nbytes", U64), ("flags", U32))


class MemoryProperties(Info):
    TYPE = 1000059006
    _fields_ = (
        ("type_count", U32),
        ("types", MemoryType * 32),
        ("heap_count", U32),
        ("heaps", MemoryHeap * 16),
    )


class MemoryBudget(Info):
    TYPE = 1000237000
    _fields_ = (("budget", U64 * 16), ("usage", U64 * 16))


class MemoryRequirements(Structure):
    _fields_ = (("nbytes", U64), ("alignment", U64), ("types", U32))


class MemoryAllocateInfo(Info):
    TYPE = 5
    _fields_ = (("nbytes", U64), ("type", U32))


class MemoryAllocateFlags(Info):
    TYPE = 1000060000
    _fields_ = (("flags", U32), ("mask", U32))


class ImportHostPointer(Info):
    TYPE = 1000178000
    _fields_ = (("handle", U32), ("pointer", PTR))


class HostPointerProperties(Info):
    TYPE = 1000178001
    _fields_ = (("types", U32),)


class ExternalMemoryBuffer(Info):
    TYPE = 1000072000
    _fields_ = (("handles", U32),)


class BufferCreateInfo(Info):
    TYPE = 12
    _fields_ = (
        ("flags", U32),
        ("nbytes", U64),
        ("usage", U32),
        ("sharing", U32),
        ("family_count", U32),
        ("families", PTR),
    )


class BufferDeviceAddressInfo(Info):
    TYPE = 1000244001
    _fields_ = (("buffer", U64),)


class BufferCopy(Structure):
    _fields_ = (("source", U64), ("target", U64), ("nbytes", U64))


class ShaderModuleCreateInfo(Info):
    TYPE = 16
    _fields_ = (("flags", U32), ("nbytes", c_size_t), ("code", c_char_p))


class SpecializationMapEntry(Structure):
    _fields_ = (("number", U32), ("offset", U32), ("nbytes", c_size_t))


class SpecializationInfo(Structure):
    _fields_ = (
        ("count", U32),
        ("entries", POINTER(SpecializationMapEntry)),
        ("nbytes", c_size_t),
        ("values", POINTER(U32)),
    )


class RequiredSubgroupSize(Info):
    TYPE = 1000225001
    _fields_ = (("lanes", U32),)


class ShaderStageCreateInfo(Info):
    TYPE = 18
    _fields_ = (
        ("flags", U32),
        ("stage", U32),
        ("module", U64),
        ("name", c_char_p),
        ("specialization", POINTER(SpecializationInfo)),
    )


class ComputePipelineCreateInfo(Info):
    TYPE = 29
    _fields_ = (
        ("flags", U32),
        ("stage", ShaderStageCreateInfo),
        ("layout", U64),
        ("base", U64),
        ("base_index", c_int32),
    )


class PushConstantRange(Structure):
    _fields_ = (("stages", U32), ("offset", U32), ("nbytes", U32))


class PipelineLayoutCreateInfo(Info):
    TYPE = 30
    _fields_ = (
        ("flags", U32),
        ("set_count", U32),
        ("sets", PTR),
        ("range_count", U32),
        ("ranges", POINTER(PushConstantRange)),
    )


class PipelineCacheCreateInfo(Info):
    TYPE = 17
    _fields_ = (("flags", U32), ("nbytes", c_size_t), ("content", c_char_p))


class CommandPoolCreateInfo(Info):
    TYPE = 39
    _fields_ = (("flags", U32), ("family", U32))


class CommandBufferAllocateInfo(Info):
    TYPE = 40
    _fields_ = (("pool", U64), ("level", U32), ("count", U32))


class CommandBufferBeginInfo(Info):
    TYPE = 42
    _fields_ = (("flags", U32), ("inheritance", PTR))


class MemoryBarrier(Info):
    TYPE = 46
    _fields_ = (("source", U32), ("target", U32))


class QueryPoolCreateInfo(Info):
    TYPE = 11
    _fields_ = (("flags", U32), ("kind", U32), ("count", U32), ("statistics", U32))


class SemaphoreType(Info):
    TYPE = 1000207002
    _fields_ = (("kind", U32), ("initial", U64))


class SemaphoreCreateInfo(Info):
    TYPE = 9
    _fields_ = (("flags", U32),)


class SemaphoreWaitInfo(Info):
    TYPE = 1000207004
    _fields_ = (
        ("flags", U32),
        ("count", U32),
        ("semaphores", POINTER(U64)),
        ("values", POINTER(U64)),
    )


class TimelineSubmitInfo(Info):
    TYPE = 1000207003
    _fields_ = (
        ("wait_count", U32),
        ("waits", PTR),
        ("signal_count", U32),
        ("signals", POINTER(U64)),
    )


class SubmitInfo(Info):
    TYPE = 4
    _fields_ = (
        ("wait_count", U32),
        ("waits", PTR),
        ("wait_stages", PTR),
        ("command_count", U32),
        ("commands", POINTER(PTR)),
        ("signal_count", U32),
        ("signals", POINTER(U64)),
    )
