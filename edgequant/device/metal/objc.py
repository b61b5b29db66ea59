"""The Objective-C runtime, and every message this host sends: selectors with their C prototypes.

Knows no meaning of what is sent. Selectors, prototypes and constants are held against Apple's own
headers by tests/parity/metal. Tests put another `Runtime` in the place of Apple's.
"""

import ctypes
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import CFUNCTYPE, PYFUNCTYPE, Structure, c_char_p, c_void_p
from typing import Any, ClassVar, Protocol

Object = int
Function = Callable[..., Any]


class Size(Structure):
    """MTLSize, passed by value."""

    _fields_: ClassVar[Any] = [(name, ctypes.c_uint64) for name in ("width", "height", "depth")]


# Letters: v nothing, p objects and pointers, s text, U NSUInteger and uint64_t, q NSInteger,
# b bool, d double, S MTLSize. The first is what the message returns.
_TYPES: dict[str, Any] = {
    "v": None,
    "p": c_void_p,
    "s": c_char_p,
    "U": ctypes.c_uint64,
    "q": ctypes.c_int64,
    "b": ctypes.c_bool,
    "d": ctypes.c_double,
    "S": Size,
}
SELECTORS = {
    "alloc": "p",
    "init": "p",
    "retain": "p",
    "release": "v",
    "stringWithCString:encoding:": "psU",
    "UTF8String": "s",
    "localizedDescription": "p",
    "code": "q",
    "name": "p",
    "supportsFamily:": "bq",
    "maxBufferLength": "U",
    "maxThreadsPerThreadgroup": "S",
    "maxThreadgroupMemoryLength": "U",
    "recommendedMaxWorkingSetSize": "U",
    "currentAllocatedSize": "U",
    "newCommandQueue": "p",
    "newBufferWithLength:options:": "pUU",
    "newBufferWithBytesNoCopy:length:options:deallocator:": "ppUUp",
    "contents": "p",
    "gpuAddress": "U",
    "setFastMathEnabled:": "vb",
    "newLibraryWithSource:options:error:": "pppp",
    "setConstantValue:type:atIndex:": "vpUU",
    "newFunctionWithName:constantValues:error:": "pppp",
    "newComputePipelineStateWithFunction:error:": "ppp",
    "maxTotalThreadsPerThreadgroup": "U",
    "threadExecutionWidth": "U",
    "commandBufferWithUnretainedReferences": "p",
    "computeCommandEncoderWithDispatchType:": "pU",
    "useResources:count:usage:": "vpUU",
    "setComputePipelineState:": "vp",
    "setBytes:length:atIndex:": "vpUU",
    "memoryBarrierWithScope:": "vU",
    "dispatchThreadgroups:threadsPerThreadgroup:": "vSS",
    "endEncoding": "v",
    "commit": "v",
    "waitUntilCompleted": "v",
    "status": "U",
    "error": "p",
    "GPUStartTime": "d",
    "GPUEndTime": "d",
}

# Apple's constants, by Apple's names without their prefix.
UTF8_STRING_ENCODING = 4
GPU_FAMILY_APPLE7, GPU_FAMILY_METAL3 = 1007, 5001
RESOURCE_STORAGE_MODE_SHARED = 0
RESOURCE_USAGE_READ, RESOURCE_USAGE_WRITE = 1, 2
DATA_TYPE_UINT = 33
DISPATCH_TYPE_CONCURRENT = 1
BARRIER_SCOPE_BUFFERS = 1
COMMAND_BUFFER_STATUS_ERROR = 5
COMMAND_BUFFER_ERROR_OUT_OF_MEMORY = 8

# Messages so short that letting other threads run meanwhile would cost more; none of them waits.
_SHORT = (
    "setComputePipelineState:",
    "setBytes:length:atIndex:",
    "memoryBarrierWithScope:",
    "dispatchThreadgroups:threadsPerThreadgroup:",
)


class Runtime(Protocol):
    """Where objects live and messages go; nil is None or 0."""

    def default_device(self) -> Object | None:
        """Return the system's Metal device, which the caller must release; nil without one."""
        ...

    def class_named(self, name: str) -> Object | None:
        """Return a class."""
        ...

    def bind(self, selector: str) -> tuple[Function, int]:
        """Return what sends a message of `SELECTORS`, and its handle.

        The function takes the receiver, the handle, and the arguments as the prototype has them.
        """
        ...

    def push_pool(self) -> int:
        """Begin an autorelease pool on this thread."""
        ...

    def pop_pool(self, pool: int) -> None:
        """Release what was autoreleased on this thread since the pool began."""
        ...


class AppleRuntime:
    """The system's own runtime, on macOS and iOS. No Apple machine has run this class yet."""

    def __init__(self) -> None:
        library = ctypes.CDLL("/usr/lib/libobjc.A.dylib")
        frameworks = "/System/Library/Frameworks"
        # Without it macOS gives no device to a program that draws nothing.
        ctypes.CDLL(f"{frameworks}/CoreGraphics.framework/CoreGraphics")
        metal = ctypes.CDLL(f"{frameworks}/Metal.framework/Metal")
        self._send = ctypes.cast(library.objc_msgSend, c_void_p).value or 0
        declared = CFUNCTYPE(c_void_p, c_char_p)
        self._class = declared(("objc_getClass", library))
        self._selector = declared(("sel_registerName", library))
        self.default_device = CFUNCTYPE(c_void_p)(("MTLCreateSystemDefaultDevice", metal))
        self.push_pool = CFUNCTYPE(c_void_p)(("objc_autoreleasePoolPush", library))
        self.pop_pool = CFUNCTYPE(None, c_void_p)(("objc_autoreleasePoolPop", library))

    def class_named(self, name: str) -> Object | None:
        """Return a class; see `Runtime`."""
        found: int | None = self._class(name.encode())
        return found

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
        self._bound: dict[str, tuple[Function, int]] = {}

    def __call__(self, receiver: Object | None, selector: str, *arguments: Any) -> Any:
        """Send a message and return its result."""
        bound = self._bound.get(selector)
        if bound is None:
            bound = self._bound[selector] = self.runtime.bind(selector)
        return bound[0](receiver, bound[1], *arguments)

    @contextmanager
    def pool(self) -> Iterator[None]:
        """Release at the end what is autoreleased meanwhile."""
        pool = self.runtime.push_pool()
        try:
            yield
        finally:
            self.runtime.pop_pool(pool)

    def string(self, text: str) -> Object:
        """Return an NSString, autoreleased."""
        made: Object = self(
            self.runtime.class_named("NSString"),
            "stringWithCString:encoding:",
            text.encode(),
            UTF8_STRING_ENCODING,
        )
        return made

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
