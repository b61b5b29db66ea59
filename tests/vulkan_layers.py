"""Vulkan's validation layers: what they say is collected, so that a test can fail on it."""

from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    byref,
    c_char,
    c_char_p,
    c_int32,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any

from edgequant.device.vulkan import api, hardware
from edgequant.device.vulkan.structs import Info

LAYER = "VK_LAYER_KHRONOS_validation"
WARNING, ERROR = 0x100, 0x1000
GENERAL, VALIDATION, PERFORMANCE = 1, 2, 4


class Message(Info):
    _fields_ = (("flags", c_uint32), ("name", c_char_p), ("number", c_int32), ("text", c_char_p))


class LayerProperties(Structure):
    _fields_ = (
        ("name", c_char * 256),
        ("version", c_uint32),
        ("revision", c_uint32),
        ("description", c_char * 256),
    )


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


class Watched:
    """An instance whose layers are listened to.

    Attributes:
        devices: of the instance; what is made on them is watched.
        messages: what the layers said; `take` empties it.
        layers: those there are: the validation layer, or none where it is not installed.
    """

    def __init__(self) -> None:
        library = api.load()
        assert library is not None, "no Vulkan library (Debian: apt-get install libvulkan1)"
        self.messages: list[str] = []
        self.layers = [LAYER] if LAYER in installed(library) else []
        extensions = ["VK_EXT_debug_utils"] if self.layers else []
        self._handle = hardware.create_instance(library, self.layers, extensions)
        self._functions = library.functions(self._handle)
        self._messenger = self._listen() if self.layers else 0
        self.devices = hardware.enumerate_devices(self._functions, self._handle)

    def take(self) -> list[str]:
        """Return what was said since the last time."""
        said, self.messages = self.messages, []
        return said

    def close(self) -> None:
        if self._messenger:
            self._functions.vkDestroyDebugUtilsMessengerEXT(self._handle, self._messenger, None)
        self._functions.vkDestroyInstance(self._handle, None)

    def _listen(self) -> int:
        self._callback = CALLBACK(self._hear)
        info = Messenger(
            severities=WARNING | ERROR, kinds=GENERAL | VALIDATION, callback=self._callback
        )
        handle = c_uint64()
        create = self._functions.vkCreateDebugUtilsMessengerEXT
        assert create(self._handle, byref(info), None, byref(handle)) == 0
        return handle.value

    def _hear(self, severity: int, kinds: int, message: Any, user: object) -> int:
        self.messages.append((message.contents.text or b"").decode(errors="replace"))
        return 0


def installed(library: api.Library) -> set[str]:
    """Return the names of the layers of this machine."""
    list_layers = library.functions(0).vkEnumerateInstanceLayerProperties
    count = c_uint32()
    assert list_layers(byref(count), None) == 0
    items = (LayerProperties * count.value)()
    assert list_layers(byref(count), items) == 0
    return {item.name.decode() for item in items}
