"""The Vulkan library: its functions by name, and what its results mean.

Knows prototypes and error codes; it does not know what anything is for.
"""

import ctypes
from collections.abc import Callable
from contextlib import suppress
from ctypes import (
    CFUNCTYPE,
    PYFUNCTYPE,
    c_char_p,
    c_int32,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any

from edgequant.errors import DeviceError

# Linux, Android, Windows, macOS (MoltenVK). Only the first was ever run.
LIBRARIES = (
    "libvulkan.so.1",
    "libvulkan.so",
    "vulkan-1.dll",
    "libvulkan.1.dylib",
    "libMoltenVK.dylib",
)

OUT_OF_HOST_MEMORY, OUT_OF_DEVICE_MEMORY, LOST = -1, -2, -4
TIMEOUT, INCOMPLETE = 2, 5
RESULTS = {
    OUT_OF_HOST_MEMORY: "out of host memory",
    OUT_OF_DEVICE_MEMORY: "out of device memory",
    -3: "initialization failed",
    LOST: "device lost",
    -5: "memory map failed",
    -6: "layer not present",
    -7: "extension not present",
    -8: "feature not present",
    -9: "incompatible driver",
    -10: "too many objects",
    -13: "unknown error",
    -1000012000: "invalid shader",
    -1000072003: "invalid external handle",
}

# Letters: v nothing, i int32, I uint32, Q uint64 and handles that are no pointers, z size_t, s
# text, p pointers and dispatchable handles. The first is what the function returns.
_TYPES: dict[str, Any] = {
    "v": None,
    "i": c_int32,
    "I": c_uint32,
    "Q": c_uint64,
    "z": c_size_t,
    "s": c_char_p,
    "p": c_void_p,
}
PROTOTYPES = {
    "vkEnumerateInstanceExtensionProperties": "ispp",
    "vkEnumerateInstanceLayerProperties": "ipp",
    "vkCreateInstance": "ippp",
    "vkDestroyInstance": "vpp",
    "vkEnumeratePhysicalDevices": "ippp",
    "vkEnumerateDeviceExtensionProperties": "ipspp",
    "vkGetPhysicalDeviceProperties2": "vpp",
    "vkGetPhysicalDeviceFeatures2": "vpp",
    "vkGetPhysicalDeviceMemoryProperties2": "vpp",
    "vkGetPhysicalDeviceQueueFamilyProperties": "vppp",
    "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR": "ippp",
    "vkGetDeviceProcAddr": "pps",
    "vkCreateDebugUtilsMessengerEXT": "ipppp",
    "vkDestroyDebugUtilsMessengerEXT": "vpQp",
    "vkCreateDevice": "ipppp",
    "vkDestroyDevice": "vpp",
    "vkDeviceWaitIdle": "ip",
    "vkGetDeviceQueue": "vpIIp",
    "vkQueueSubmit": "ipIpQ",
    "vkCreateSemaphore": "ipppp",
    "vkDestroySemaphore": "vpQp",
    "vkWaitSemaphores": "ippQ",
    "vkCreateBuffer": "ipppp",
    "vkDestroyBuffer": "vpQp",
    "vkGetBufferMemoryRequirements": "vpQp",
    "vkGetBufferDeviceAddress": "Qpp",
    "vkAllocateMemory": "ipppp",
    "vkFreeMemory": "vpQp",
    "vkBindBufferMemory": "ipQQQ",
    "vkMapMemory": "ipQQQIp",
    "vkGetMemoryHostPointerPropertiesEXT": "ipIpp",
    "vkCreateShaderModule": "ipppp",
    "vkDestroyShaderModule": "vpQp",
    "vkCreatePipelineLayout": "ipppp",
    "vkDestroyPipelineLayout": "vpQp",
    "vkCreatePipelineCache": "ipppp",
    "vkDestroyPipelineCache": "vpQp",
    "vkGetPipelineCacheData": "ipQpp",
    "vkCreateComputePipelines": "ipQIppp",
    "vkDestroyPipeline": "vpQp",
    "vkCreateCommandPool": "ipppp",
    "vkDestroyCommandPool": "vpQp",
    "vkAllocateCommandBuffers": "ippp",
    "vkFreeCommandBuffers": "vpQIp",
    "vkBeginCommandBuffer": "ipp",
    "vkEndCommandBuffer": "ip",
    "vkCmdBindPipeline": "vpIQ",
    "vkCmdPushConstants": "vpQIIIp",
    "vkCmdDispatch": "vpIII",
    "vkCmdPipelineBarrier": "vpIIIIpIpIp",
    "vkCmdCopyBuffer": "vpQQIp",
    "vkCmdFillBuffer": "vpQQQI",
    "vkCreateQueryPool": "ipppp",
    "vkDestroyQueryPool": "vpQp",
    "vkCmdResetQueryPool": "vpQII",
    "vkCmdWriteTimestamp": "vpIQI",
    "vkGetQueryPoolResults": "ipQIIzpQI",
}


_SHORT = ("vkCmd", "vkBeginCommandBuffer", "vkEndCommandBuffer", "vkGetBuffer")


class Functions:
    """Vulkan's functions as attributes, each looked up by `lookup(name)` when first used."""

    def __init__(self, lookup: Callable[[bytes], int | None]) -> None:
        self._lookup = lookup

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in PROTOTYPES:
            raise AttributeError(name)
        address = self._lookup(name.encode())
        if not address:
            raise DeviceError(
                f"vulkan: the driver has no {name}.",
                hint="update the graphics driver, or use --device cpu.",
            )
        # Other threads may run meanwhile, but for calls that take less time than changing threads.
        call = PYFUNCTYPE if name.startswith(_SHORT) else CFUNCTYPE
        function = call(*(_TYPES[letter] for letter in PROTOTYPES[name]))(address)
        setattr(self, name, function)
        return function

    def of_device(self, device: int) -> "Functions":
        """Return a device's functions, which reach the driver without a detour."""
        return Functions(lambda name: self.vkGetDeviceProcAddr(device, name))


class Library:
    """The loaded library; `functions(0)` are those that need no instance."""

    def __init__(self, name: str) -> None:
        self._lookup = ctypes.CDLL(name).vkGetInstanceProcAddr
        self._lookup.argtypes, self._lookup.restype = (c_void_p, c_char_p), c_void_p

    def functions(self, instance: int) -> Functions:
        """Return the functions of an instance."""
        return Functions(lambda name: self._lookup(instance, name))


def load() -> Library | None:
    """Load the library, or return None where there is none."""
    for name in LIBRARIES:
        with suppress(OSError, AttributeError):
            return Library(name)
    return None


def check(result: int, doing: str) -> None:
    """Raise DeviceError for a result that is an error; `doing` completes "while …"."""
    if result >= 0:
        return
    if result == LOST:
        raise DeviceError(
            f"vulkan: the device was lost while {doing}.",
            hint="run again; if it stays so, update the graphics driver or use --device cpu.",
        )
    raise DeviceError(
        f"vulkan: {RESULTS.get(result, 'an unknown error')} ({result}) while {doing}.",
        hint="close other programs that use the GPU, update its driver, or use --device cpu.",
    )
