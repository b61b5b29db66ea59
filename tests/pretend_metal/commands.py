"""Command queues, command buffers and compute encoders: what is encoded, and whether it may be."""

import ctypes
from dataclasses import dataclass
from typing import Protocol

from pretend_metal.foundation import Error
from pretend_metal.hazards import Declared
from pretend_metal.kernels import Pipeline, Triple
from pretend_metal.kinds import DOUBLE, ID, POINTER, SIZE, UNSIGNED
from pretend_metal.limits import Limits
from pretend_metal.memory import AddressSpace, Buffer
from pretend_metal.objects import Heap, Thing, message
from pretend_metal.refused import Refused

NOT_ENQUEUED, COMMITTED, COMPLETED, FAILED = 0, 2, 4, 5
READ, WRITE = 1, 2
SERIAL, CONCURRENT = 0, 1
BUFFERS = 1
INLINE_BYTES = 4096  # of setBytes
UNCOMPLETED = 64  # command buffers of a queue


@dataclass(frozen=True)
class Run:
    """One dispatch, its addresses made real.

    Attributes:
        memory: address, bytes, and whether it may be written, of all it may touch; None if nobody
            told.
    """

    pipeline: Pipeline
    arguments: bytes
    groups: Triple
    threads: Triple
    memory: list[tuple[int, int, bool]] | None


class Executor(Protocol):
    """When committed command buffers run."""

    def commit(self, commands: "CommandBuffer") -> None:
        """Take a command buffer to be run after those before."""
        ...

    def finish(self, commands: "CommandBuffer") -> None:
        """Return when it has run."""
        ...

    def make_room(self) -> None:
        """Return when a queue that was full is not."""
        ...


class Queue(Thing):
    """MTLCommandQueue."""

    def __init__(
        self,
        heap: Heap,
        space: AddressSpace,
        limits: Limits,
        executor: Executor,
        declared: Declared,
    ) -> None:
        super().__init__(heap)
        self.space, self.limits, self.executor, self.declared = space, limits, executor, declared
        self.uncompleted: list[CommandBuffer] = []

    def dealloc(self) -> None:
        if self.uncompleted:
            raise Refused(f"{self!r} was released with command buffers that have not completed")

    @message("commandBufferWithUnretainedReferences", returns=ID)
    def command_buffer(self) -> Thing:
        if len(self.uncompleted) >= UNCOMPLETED:
            if all(commands.state == NOT_ENQUEUED for commands in self.uncompleted):
                raise Refused(f"{UNCOMPLETED} command buffers, none committed: Metal waits forever")
            self.executor.make_room()
        commands = CommandBuffer(self.heap, self)
        self.uncompleted.append(commands)
        return commands.autoreleased()


class CommandBuffer(Thing):
    """MTLCommandBuffer.

    Attributes:
        segments: of dispatches that no barrier separates.
        used: the buffers and pipelines it needs.
    """

    def __init__(self, heap: Heap, queue: Queue) -> None:
        super().__init__(heap)
        self.queue = queue
        self.state = NOT_ENQUEUED
        self.segments: list[list[Run]] = []
        self.used: set[Buffer | Pipeline] = set()
        self.encoder: Encoder | None = None
        self.failure: Error | None = None
        self.started = self.ended = 0.0

    def dealloc(self) -> None:
        if self.state == NOT_ENQUEUED:
            self.queue.uncompleted.remove(self)
        if self.failure is not None:
            self.failure.release()

    @message("computeCommandEncoderWithDispatchType:", UNSIGNED, returns=ID)
    def new_encoder(self, kind: int) -> Thing:
        if self.state != NOT_ENQUEUED:
            raise Refused(f"{self!r} was committed: nothing more can be encoded")
        if self.encoder is not None:
            raise Refused(f"{self!r} has an encoder that has not ended")
        if kind not in (SERIAL, CONCURRENT):
            raise Refused(f"{kind} is no dispatch type")
        self.encoder = Encoder(self.heap, self, concurrent=kind == CONCURRENT)
        return self.encoder.autoreleased()

    @message("commit")
    def commit(self) -> None:
        if self.state != NOT_ENQUEUED:
            raise Refused(f"{self!r} was committed twice")
        if self.encoder is not None:
            raise Refused(f"{self!r} was committed before its encoder ended")
        gone = [thing for thing in self.used if not thing.references]
        if gone:
            raise Refused(f"{self!r} was committed, but {gone[0]!r} was released")
        with self.heap.lock:
            for thing in self.used:
                thing.pins += 1
        self.state = COMMITTED
        self.retain()  # Metal's own, until it has completed
        self.queue.executor.commit(self)

    def complete(self, failure: Error | None) -> None:
        """Note that it has run, or failed."""
        with self.heap.lock:
            for thing in self.used:
                thing.pins -= 1
        self.failure = failure
        self.queue.uncompleted.remove(self)
        self.state = COMPLETED if failure is None else FAILED
        self.release()

    @property
    def has_ended(self) -> bool:
        """Whether it has run."""
        return self.state in (COMPLETED, FAILED)

    @message("waitUntilCompleted")
    def wait(self) -> None:
        if self.state == NOT_ENQUEUED:
            raise Refused(f"{self!r} was not committed: Metal would wait forever")
        self.queue.executor.finish(self)

    @message("status", returns=UNSIGNED)
    def status(self) -> int:
        return self.state

    @message("error", returns=ID)
    def error(self) -> Thing | None:
        return self.failure

    @message("GPUStartTime", returns=DOUBLE)
    def gpu_start(self) -> float:
        return self.started

    @message("GPUEndTime", returns=DOUBLE)
    def gpu_end(self) -> float:
        return self.ended


class Encoder(Thing):
    """MTLComputeCommandEncoder."""

    def __init__(self, heap: Heap, commands: CommandBuffer, *, concurrent: bool) -> None:
        super().__init__(heap)
        self.commands, self.concurrent = commands, concurrent
        self.space, self.limits = commands.queue.space, commands.queue.limits
        self.pipeline: Pipeline | None = None
        self.arguments: bytes | None = None
        self.usage: dict[Buffer, int] = {}
        self.hazards = commands.queue.declared.segment()
        self.ended = False
        commands.segments.append([])

    def dealloc(self) -> None:
        if not self.ended and not self.refused:
            raise Refused(f"{self!r} was released before endEncoding")

    def _open(self) -> None:
        if self.ended:
            raise Refused(f"{self!r} has ended")

    @message("endEncoding")
    def end(self) -> None:
        self._open()
        self.ended = True
        self.commands.encoder = None
        self.commands.used |= set(self.usage)

    @message("useResources:count:usage:", POINTER, UNSIGNED, UNSIGNED)
    def use_resources(self, pointer: int, count: int, usage: int) -> None:
        self._open()
        if not count or usage not in (READ, WRITE, READ | WRITE):
            raise Refused(f"{count} resources with usage {usage}")
        for number in (ctypes.c_void_p * count).from_address(pointer):
            buffer = self.heap.find(number or 0)
            if not isinstance(buffer, Buffer):
                raise Refused(f"{buffer!r} is no resource")
            self.usage[buffer] = self.usage.get(buffer, 0) | usage

    @message("setComputePipelineState:", ID)
    def set_pipeline(self, pipeline: Thing) -> None:
        self._open()
        if not isinstance(pipeline, Pipeline):
            raise Refused(f"{pipeline!r} is no pipeline")
        self.pipeline = pipeline
        self.commands.used.add(pipeline)

    @message("setBytes:length:atIndex:", POINTER, UNSIGNED, UNSIGNED)
    def set_bytes(self, pointer: int, length: int, index: int) -> None:
        self._open()
        if index:
            raise Refused(f"bytes are set at index {index}: kernels have arguments at 0 alone")
        if not 0 < length <= INLINE_BYTES:
            raise Refused(f"{length} bytes are set; Metal takes 1 to {INLINE_BYTES}")
        self.arguments = ctypes.string_at(pointer, length)

    @message("memoryBarrierWithScope:", UNSIGNED)
    def barrier(self, scope: int) -> None:
        self._open()
        if not self.concurrent:
            raise Refused("a barrier in a serial encoder orders what is ordered")
        if scope != BUFFERS:
            raise Refused(f"a barrier of scope {scope}: kernels touch buffers alone")
        self._barrier()

    @message("dispatchThreadgroups:threadsPerThreadgroup:", SIZE, SIZE)
    def dispatch(self, groups: Triple, threads: Triple) -> None:
        self._open()
        if self.pipeline is None:
            raise Refused("a dispatch without a pipeline")
        if self.arguments is None:
            raise Refused(f"{self.pipeline.entry}: a dispatch without arguments")
        if not all((*groups, *threads)):
            raise Refused(f"{self.pipeline.entry}: {groups} threadgroups of {threads} threads")
        most, count = self.limits.threads, threads[0] * threads[1] * threads[2]
        if count > most:
            raise Refused(
                f"{self.pipeline.entry}: {count} threads in a threadgroup of at most {most}"
            )
        arguments = self._real(self.pipeline, self.arguments)
        memory = None
        if self.commands.queue.declared:
            touched = self.hazards.add(self.pipeline.entry, self.arguments, groups, self.usage)
            memory = [(self._of_cpu(start), end - start, writes) for start, end, writes in touched]
        self.commands.segments[-1].append(Run(self.pipeline, arguments, groups, threads, memory))
        if not self.concurrent:
            self._barrier()

    def _barrier(self) -> None:
        self.commands.segments.append([])
        self.hazards = self.commands.queue.declared.segment()

    def _of_cpu(self, address: int) -> int:
        buffer = self.space.find(address)
        return address - buffer.address + buffer.start

    def _real(self, pipeline: Pipeline, arguments: bytes) -> bytes:
        """Return the arguments with addresses of the CPU, after seeing that they may be used."""
        wanted = pipeline.arguments
        if len(arguments) != wanted.nbytes:
            raise Refused(
                f"{pipeline.entry}: {len(arguments)} bytes of arguments, not {wanted.nbytes}"
            )
        real = b""
        for at in range(0, 8 * wanted.addresses, 8):
            address = int.from_bytes(arguments[at : at + 8], "little")
            try:
                buffer = self.space.find(address)
            except Refused as refused:
                raise Refused(f"{pipeline.entry}: argument {at // 8}: {refused}") from None
            if buffer not in self.usage:
                raise Refused(
                    f"{pipeline.entry}: argument {at // 8} is in {buffer!r}, not declared"
                )
            real += (address - buffer.address + buffer.start).to_bytes(8, "little")
        return real + arguments[len(real) :]
