"""The Objective-C runtime, and every message this host sends: selectors with their C prototypes.

Knows no meaning of what is sent. Selectors, prototypes and constants are held against Apple's own
headers by tests/parity/metal. Tests put another `Runtime` in the place of Apple's.
"""

import ctypes
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import CFUNCTYPE, PYFUNCTYPE, c_bool, c_char_p, c_double, c_int64, c_uint64, c_void_p
from functools import cache
from typing import Any, ClassVar, Protocol

Object = int
Function = Callable[..., Any]


class Size(ctypes.Structure):
    """MTLSize, passed by value."""

    _fields_: ClassVar[Any] = [(name, c_uint64) for name in ("width", "height", "depth")]


# Letters: v nothing, p objects and pointers, s text, U NSUInteger and uint64_t, q NSInteger,
# b bool, d double, S MTLSize. The first is what the message returns.
_TYPES: dict[str, Any] = {
    "v": None, "p": c_void_p, "s": c_char_p, "U": c_uint64, "q": c_int64, "b": c_bool,
    "d": c_double, "S": Size,
}  # fmt: skip
MESSAGES = {
    "NSObject": "p alloc, p init, p retain, v release",
    "NSString": "psU stringWithCString:encoding:, s UTF8String",
    "NSError": "p localizedDescription, q code",
    "MTLDevice": "p name, bq supportsFamily:, U maxBufferLength, S maxThreadsPerThreadgroup,"
    " U maxThreadgroupMemoryLength, U recommendedMaxWorkingSetSize, U currentAllocatedSize,"
    " p newCommandQueue, pUU newBufferWithLength:options:,"
    " ppUUp newBufferWithBytesNoCopy:length:options:deallocator:,"
    " pppp newLibraryWithSource:options:error:, ppp newComputePipelineStateWithFunction:error:",
    "MTLBuffer": "p contents, U gpuAddress",
    "MTLCompileOptions": "vb setFastMathEnabled:",
    "MTLLibrary": "pppp newFunctionWithName:constantValues:error:",
    "MTLFunctionConstantValues": "vpUU setConstantValue:type:atIndex:",
    "MTLComputePipelineState": "U maxTotalThreadsPerThreadgroup, U threadExecutionWidth",
    "MTLCommandQueue": "p commandBufferWithUnretainedReferences",
    "MTLCommandBuffer": "pU computeCommandEncoderWithDispatchType:, v commit, v waitUntilCompleted,"
    " U status, p error, d GPUStartTime, d GPUEndTime",
    "MTLComputeCommandEncoder": "vpUU useResources:count:usage:, vp setComputePipelineState:,"
    " vpUU setBytes:length:atIndex:, vU memoryBarrierWithScope:,"
    " vSS dispatchThreadgroups:threadsPerThreadgroup:",
    "MTLCommandEncoder": "v endEncoding",
}
SELECTORS = {
    selector: letters
    for messages in MESSAGES.values()
    for letters, selector in (message.split() for message in messages.split(","))
}

# Apple's constants, by Apple's names without their prefix.
UTF8_STRING_ENCODING = 4
GPU_FAMILY_APPLE7, GPU_FAMILY_METAL3 = 1007, 5001
RESOURCE_STORAGE_MODE_SHARED = 0
RESOURCE_USAGE_READ, RESOURCE_USAGE_WRITE = 1, 2
DATA_TYPE_UINT = 33
DISPATCH_TYPE_CONCURRENT, BARRIER_SCOPE_BUFFERS = 1, 1
COMMAND_BUFFER_STATUS_ERROR, COMMAND_BUFFER_ERROR_OUT_OF_MEMORY = 5, 8

# To encoders: so short that letting other threads run meanwhile would cost more, and none waits.
_SHORT = MESSAGES["MTLComputeCommandEncoder"]


class Runtime(Protocol):
    """Where objects live and messages go; nil is None or 0."""

    def default_device(self) -> Object | None:
        """Return the system's Metal device, which the caller must release; nil without one."""

    def class_named(self, name: str) -> Object | None:
        """Return a class."""

    def bind(self, selector: str) -> tuple[Function, int]:
        """Return a function for messages of `SELECTORS`, and the selector's handle.

        The function takes the receiver, the handle, and the arguments as the prototype has them.
        """

    def push_pool(self) -> int:
        """Begin an autorelease pool on this thread."""

    def pop_pool(self, pool: int) -> None:
        """Release what was autoreleased on this thread since the pool began."""


class AppleRuntime:
    """The system's own runtime, on macOS and iOS. No Apple machine has run this class yet."""

    def __init__(self) -> None:
        library = ctypes.CDLL("/usr/lib/libobjc.A.dylib")
        framework = "/System/Library/Frameworks/{0}.framework/{0}"
        # Without it macOS gives no device to a program that draws nothing.
        ctypes.CDLL(framework.format("CoreGraphics"))
        metal = ctypes.CDLL(framework.format("Metal"))
        self._send = ctypes.cast(library.objc_msgSend, c_void_p).value or 0
        self._class = CFUNCTYPE(c_void_p, c_char_p)(("objc_getClass", library))
        self._selector = CFUNCTYPE(c_void_p, c_char_p)(("sel_registerName", library))
        self.default_device = CFUNCTYPE(c_void_p)(("MTLCreateSystemDefaultDevice", metal))
        self.push_pool = CFUNCTYPE(c_void_p)(("objc_autoreleasePoolPush", library))
        self.pop_pool = CFUNCTYPE(None, c_void_p)(("objc_autoreleasePoolPop", library))

    def class_named(self, name: str) -> Any:
        """Return a class; see `Runtime`."""
        return self._class(name.encode())

    def bind(self, selector: str) -> tuple[Function, int]:
        """Return what sends a message; see `Runtime`."""
        result, *arguments = (_TYPES[letter] for letter in SELECTORS[selector])
        prototype = PYFUNCTYPE if selector in _SHORT else CFUNCTYPE
        send = prototype(result, c_void_p, c_void_p, *arguments)(self._send)
        return send, self._selector(selector.encode())


class Messages:
    """Sends messages by name: `send(receiver, selector, *arguments)`."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.bind = cache(runtime.bind)

    def __call__(self, receiver: Object | None, selector: str, *arguments: Any) -> Any:
        """Send a message and return its result."""
        function, handle = self.bind(selector)
        return function(receiver, handle, *arguments)

    @contextmanager
    def pool(self) -> Iterator[None]:
        """Release at the end what is autoreleased meanwhile."""
        pool = self.runtime.push_pool()
        try:
            yield
        finally:
            self.runtime.pop_pool(pool)

    def make(self, name: str) -> Any:
        """Return a new object of a class, which the caller must release."""
        return self(self(self.runtime.class_named(name), "alloc"), "init")

    def string(self, text: str) -> Any:
        """Return an NSString, autoreleased."""
        kind, selector = self.runtime.class_named("NSString"), "stringWithCString:encoding:"
        return self(kind, selector, text.encode(), UTF8_STRING_ENCODING)

    def text(self, string: Object | None) -> str:
        """Return what an NSString says."""
        return self(string, "UTF8String").decode() if string else ""


def find_runtime() -> Runtime | str:
    """Return this system's runtime, or say why it has none for us."""
    if platform.system() not in ("Darwin", "iOS"):
        return f"Metal is Apple's, and this machine runs {platform.system()}."
    if platform.machine() == "x86_64":
        return "this Python is built for x86_64; Apple's GPUs want one for arm64."
    return AppleRuntime()
