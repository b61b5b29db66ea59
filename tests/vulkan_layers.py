"""Vulkan's validation layers: what they say is collected, so that a test can fail on it."""

from ctypes import CFUNCTYPE, POINTER, byref, c_char_p, c_int32, c_uint32, c_void_p
from typing import Any

from edgequant.device.vulkan import api, hardware
from edgequant.device.vulkan.structs import Info

LAYER = "VK_LAYER_KHRONOS_validation"
WARNING, ERROR = 0x100, 0x1000
GENERAL, VALIDATION, PERFORMANCE = 1, 2, 4


class Message(Info):
    _fields_ = (("flags", c_uint32), ("name", c_char_p), ("number", c_int32), ("text", c_char_p))


CALLBACK = CFUNCTYPE(c_uint32, c_uint32, c_uint32, POINTER(Message), c_void_p)


class Messenger(Info):
    TYPE = 1000128004
    _fields_ = (
        ("flags", c_uint32),
        ("severities", c_uint32),
        ("kinds", c_uint32),
        ("callback", CALLBACK),
        ("user", c_void_p),
    )


class Validated:
    """An instance with the layers.

    Attributes:
        devices: of the instance; what is made on them is watched.
        messages: what the layers said.
    """

    def __init__(self) -> None:
        library = api.load()
        assert library is not None, "no Vulkan library (Debian: apt-get install libvulkan1)"
        self.messages: list[str] = []
        self._handle = hardware.create_instance(library, [LAYER], ["VK_EXT_debug_utils"])
        self._functions = library.functions(self._handle)
        self._callback = CALLBACK(self._hear)
        info = Messenger(
            severities=WARNING | ERROR, kinds=GENERAL | VALIDATION, callback=self._callback
        )
        handle = (c_uint32 * 2)()
        create = self._functions.vkCreateDebugUtilsMessengerEXT
        assert create(self._handle, byref(info), None, handle) == 0
        self._messenger = int.from_bytes(bytes(handle), "little")
        self.devices = hardware.enumerate_devices(self._functions, self._handle)

    def close(self) -> None:
        self._functions.vkDestroyDebugUtilsMessengerEXT(self._handle, self._messenger, None)
        self._functions.vkDestroyInstance(self._handle, None)

    def _hear(self, severity: int, kinds: int, message: Any, user: object) -> int:
        self.messages.append((message.contents.text or b"").decode(errors="replace"))
        return 0
