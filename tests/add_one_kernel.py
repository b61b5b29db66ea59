"""A kernel for tests of GPU hosts, y = x + 1: its Metal source, and what stands for it."""

import ctypes
import struct
from collections.abc import Mapping

import numpy as np

from edgequant.device.unified import UnifiedGpu
from edgequant.graph.launch import Dispatch, Span

ADD_ONE = """// entry add_one, threads 32 1 1
struct Args_0 { float device* x_0; float device* y_0; uint count_0; };
[[kernel]] void add_one(Args_0 constant* args_0 [[buffer(0)]]) { oops }
"""
SCALED = """// entry add_one, threads constant 0
constant uint threads_0 [[function_constant(0)]];
struct Args_0 { float device* x_0; float device* y_0; uint count_0; };
[[kernel]] void add_one(Args_0 constant* args_0 [[buffer(0)]]) { }
"""
COUNT = 4


class AddOne:
    """Stands for compiled Metal: y = x + 1."""

    shared_nbytes = 0
    broken: str | None = None  # what the compiler says
    ran: list[tuple[int, int, int]]

    def __call__(self, source: str, constants: Mapping[int, int]) -> "AddOne":
        if self.broken is not None:
            raise ValueError(self.broken)
        self.ran = []
        return self

    def dispatch(
        self, entry: str, arguments: bytes, groups: object, threads: tuple[int, int, int], **_: int
    ) -> None:
        assert entry == "add_one"
        x, y, count = struct.unpack("<QQI4x", arguments)
        source, target = ((ctypes.c_float * count).from_address(a) for a in (x, y))
        target[:] = [value + 1 for value in source]
        self.ran.append(threads)


def floats(raw: bytes) -> list[float]:
    return np.frombuffer(raw, np.float32).tolist()


def add_one(gpu: UnifiedGpu, x: int, y: int, kernel: str = "add_one", offset: int = 0) -> Dispatch:
    """Return the dispatch y = x + 1, of the floats at an offset of x."""
    arguments = struct.pack("<QQI", gpu.address(x) + offset, gpu.address(y), COUNT)
    reads, writes = (Span(x, offset, 4 * COUNT),), (Span(y, 0, 4 * COUNT),)
    constants = (32,) if kernel == "scaled" else ()
    return Dispatch(kernel, constants, arguments, (1, 1, 1), reads, writes)


def run(gpu: UnifiedGpu, *dispatches: Dispatch, timed: bool = False) -> list[float]:
    recording = gpu.record(dispatches, timed=timed)
    seconds = gpu.wait(gpu.submit(recording))
    gpu.discard(recording)
    return list(seconds)
