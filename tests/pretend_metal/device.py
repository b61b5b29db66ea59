"""MTLDevice: what it says of itself, and what is made on it."""

import sys
from dataclasses import dataclass

from pretend_metal.commands import Executor, Queue
from pretend_metal.foundation import String
from pretend_metal.hazards import Declared
from pretend_metal.kernels import Compile, make_library, make_pipeline
from pretend_metal.kinds import BOOL, ID, POINTER, SIGNED, SIZE, UNSIGNED
from pretend_metal.limits import Limits
from pretend_metal.memory import AddressSpace, Buffer, is_mapped
from pretend_metal.objects import Heap, Thing, message
from pretend_metal.refused import Refused


@dataclass(frozen=True)
class Machine:
    """What a device is made of."""

    limits: Limits
    compile: Compile
    executor: Executor
    declared: Declared


class Device(Thing):
    """MTLDevice. There is one, which never goes away."""

    def __init__(self, heap: Heap, machine: Machine) -> None:
        super().__init__(heap)
        self.machine, self.limits = machine, machine.limits
        self.space = AddressSpace()

    def dealloc(self) -> None:
        raise Refused("the device was released more often than it was taken")

    @message("name", returns=ID)
    def name(self) -> Thing:
        return String(self.heap, self.limits.name.encode()).autoreleased()

    @message("supportsFamily:", SIGNED, returns=BOOL)
    def supports_family(self, family: int) -> bool:
        return family in self.limits.families

    @message("maxBufferLength", returns=UNSIGNED)
    def max_buffer_length(self) -> int:
        return self.limits.buffer

    @message("maxThreadsPerThreadgroup", returns=SIZE)
    def max_threads(self) -> tuple[int, int, int]:
        return (self.limits.threads,) * 3

    @message("maxThreadgroupMemoryLength", returns=UNSIGNED)
    def max_threadgroup_memory(self) -> int:
        return self.limits.shared

    @message("recommendedMaxWorkingSetSize", returns=UNSIGNED)
    def working_set(self) -> int:
        return self.limits.working_set

    @message("currentAllocatedSize", returns=UNSIGNED)
    def allocated(self) -> int:
        buffers = (thing.length for thing in self.heap.living() if isinstance(thing, Buffer))
        return self.limits.allocated + sum(buffers)

    @message("newCommandQueue", returns=ID)
    def new_queue(self) -> Thing:
        machine = self.machine
        return Queue(self.heap, self.space, self.limits, machine.executor, machine.declared)

    @message("newBufferWithLength:options:", UNSIGNED, UNSIGNED, returns=ID)
    def new_buffer(self, length: int, options: int) -> Thing | None:
        self._check(length, options)
        if self.allocated() + length > self.limits.memory:
            return None
        return Buffer.allocate(self.heap, self.space, length, self.limits.page)

    @message(
        "newBufferWithBytesNoCopy:length:options:deallocator:",
        POINTER, UNSIGNED, UNSIGNED, ID, returns=ID,
    )  # fmt: skip
    def new_buffer_no_copy(
        self, start: int, length: int, options: int, deallocator: Thing | None
    ) -> Thing | None:
        self._check(length, options)
        page = self.limits.page
        if not start or start % page or length % page:
            raise Refused(f"{length} bytes at {start:#x} are not whole pages of {page}")
        if sys.platform == "linux" and not is_mapped(start, length):
            raise Refused(f"{length} bytes at {start:#x} are not all mapped")
        if deallocator is not None:
            raise Refused("what the host mapped, the host unmaps")
        if self.allocated() + length > self.limits.memory:
            return None
        return Buffer(self.heap, self.space, start, length)

    @message("newLibraryWithSource:options:error:", ID, ID, POINTER, returns=ID)
    def new_library(self, source: Thing, options: Thing | None, error: int) -> Thing | None:
        if not isinstance(source, String):
            raise Refused(f"{source!r} is no text")
        text, compile_ = source.text.decode(), self.machine.compile
        return make_library(self.heap, text, options, compile_, self.limits, error)

    @message("newComputePipelineStateWithFunction:error:", ID, POINTER, returns=ID)
    def new_pipeline(self, function: Thing, error: int) -> Thing | None:
        return make_pipeline(self.heap, function, error)

    def _check(self, length: int, options: int) -> None:
        if not 0 < length <= self.limits.buffer:
            raise Refused(f"a buffer of {length} bytes; Metal takes 1 to {self.limits.buffer}")
        if options:
            raise Refused(
                f"resource options {options}: the host must see, and Metal track, buffers"
            )
