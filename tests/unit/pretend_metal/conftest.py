"""A pretend Mac whose kernels only note that they ran."""

import ctypes
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest
from pretend_metal import PretendMetal

from edgequant.device.metal import objc
from edgequant.device.metal.objc import Messages, Size

SOURCE = """
struct Args_0 { float device* x_0; float device* y_0; uint count_0; };
[[kernel]] void twice(Args_0 constant* args_0 [[buffer(0)]]) { }
"""


@dataclass
class Noted:
    """Stands for compiled MSL: notes what it is asked to run."""

    ran: list[tuple[str, bytes]] = field(default_factory=list)
    shared_nbytes: int = 0

    def __call__(self, source: str, constants: Mapping[int, int]) -> "Noted":
        if "oops" in source:
            raise ValueError("use of undeclared identifier 'oops'")
        return self

    def dispatch(self, entry: str, arguments: bytes, *_: object, **__: object) -> None:
        self.ran.append((entry, arguments))


@pytest.fixture
def kernels() -> Noted:
    return Noted()


@pytest.fixture
def runtime(kernels: Noted) -> PretendMetal:
    return PretendMetal(kernels)


@pytest.fixture
def mac(runtime: PretendMetal) -> Iterator["Mac"]:
    opened = Mac(runtime)
    with opened.send.pool():
        yield opened


class Mac:
    """A device with a queue, and short words for what tests do with it."""

    def __init__(self, runtime: PretendMetal) -> None:
        self.runtime = runtime
        self.send = Messages(runtime)
        self.device = runtime.default_device()
        self.queue = self.send(self.device, "newCommandQueue")

    def buffer(self, nbytes: int = 64) -> int:
        return self.send(self.device, "newBufferWithLength:options:", nbytes, 0)

    def made(self, name: str) -> int:
        return self.send(self.send(self.runtime.class_named(name), "alloc"), "init")

    def library(self, source: str = SOURCE) -> int | None:
        options = self.made("MTLCompileOptions")
        self.send(options, "setFastMathEnabled:", False)
        text = self.send.string(source)
        return self.asked(self.device, "newLibraryWithSource:options:error:", text, options)

    def pipeline(self, source: str = SOURCE, constants: Mapping[int, int] = {}) -> int | None:
        values = self.made("MTLFunctionConstantValues")
        for number, value in constants.items():
            held = ctypes.c_uint32(value)
            pointer, kind = ctypes.addressof(held), objc.DATA_TYPE_UINT
            self.send(values, "setConstantValue:type:atIndex:", pointer, kind, number)
        named = "newFunctionWithName:constantValues:error:"
        library = self.library(source)
        function = library and self.asked(library, named, self.send.string("twice"), values)
        return function and self.asked(
            self.device, "newComputePipelineStateWithFunction:error:", function
        )

    def asked(self, receiver: int | None, selector: str, *arguments: object) -> int | None:
        """Send a message that may leave an error, whose text is in `said`."""
        error = ctypes.c_void_p()
        answer = self.send(receiver, selector, *arguments, ctypes.addressof(error))
        self.said = error.value and self.send.text(self.send(error.value, "localizedDescription"))
        return answer

    def commands(self) -> int:
        return self.send(self.queue, "commandBufferWithUnretainedReferences")

    def encoder(self, commands: int, *used: int, usage: int = 3, kind: int = 1) -> int:
        encoder = self.send(commands, "computeCommandEncoderWithDispatchType:", kind)
        if used:
            self.send(encoder, "useResources:count:usage:", self.array(*used), len(used), usage)
        return encoder

    def array(self, *objects: int) -> object:
        return (ctypes.c_void_p * len(objects))(*objects)

    def arguments(self, x: int, y: int, offset: int = 0, count: int = 0) -> bytes:
        addresses = [self.send(buffer, "gpuAddress") + offset for buffer in (x, y)]
        return b"".join(a.to_bytes(8, "little") for a in addresses) + count.to_bytes(8, "little")

    def dispatch(
        self,
        encoder: int,
        pipeline: int | None,
        arguments: bytes | None,
        groups: tuple[int, int, int] = (1, 1, 1),
        threads: tuple[int, int, int] = (32, 1, 1),
    ) -> None:
        if pipeline:
            self.send(encoder, "setComputePipelineState:", pipeline)
        if arguments is not None:
            self.send(encoder, "setBytes:length:atIndex:", arguments, len(arguments), 0)
        sizes = Size(*groups), Size(*threads)
        self.send(encoder, "dispatchThreadgroups:threadsPerThreadgroup:", *sizes)

    def run(self, x: int, y: int) -> int:
        """Encode and commit one dispatch; return its command buffer."""
        commands = self.commands()
        encoder = self.encoder(commands, x, y)
        self.dispatch(encoder, self.pipeline(), self.arguments(x, y))
        self.send(encoder, "endEncoding")
        self.send(commands, "commit")
        return commands
