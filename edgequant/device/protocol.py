"""The two seams of running: a device runs graphs; a GPU has a dozen verbs.

`cpu` implements `Device` and is the definition. A GPU host implements `Gpu`; what all GPUs share
(binding, planning, recording, replaying) is written once on top of it. Capabilities beyond
`Program` are protocols of their own, so that an engine that lacks one has no stub for it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from edgequant.blocks import Floats, Weights
from edgequant.graph import Graph
from edgequant.graph.launch import Dispatch, Limits

Tokens = NDArray[np.int32]


@dataclass(frozen=True)
class Sums:
    """What a linear layer's input summed to: `in_sum2` (columns,) float32, over `count` tokens."""

    in_sum2: Floats
    count: int


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen, in llama.cpp's terms.

    Attributes:
        temperature: <= 0 is greedy.
        top_k: keep the k most likely; 0 keeps all.
        top_p: keep the smallest set with this much probability; 1 keeps all.
        min_p: drop what is less likely than this share of the most likely; 0 keeps all.
        repeat_penalty: divides (multiplies, if negative) the logits of recent tokens; 1 is off.
        repeat_last: how many recent tokens the penalty sees.
        seed: of the random stream; None draws one.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    repeat_last: int = 64
    seed: int | None = None


class Program(Protocol):
    """A graph with its weights on a device, and one KV cache of `context` tokens."""

    context: int

    def run(self, tokens: Tokens, past: int, *, rows: int = 1) -> Floats:
        """Feed tokens at positions past.. and return the logits of the last `rows` of them.

        Args:
            tokens: (n,) ids, n >= 1, past + n <= context.
            past: tokens already in the KV cache; going back to a smaller number forgets the rest.
            rows: 0..n; with 0 the KV cache is filled and no more.

        Returns:
            (rows, vocab) float32.
        """
        ...

    def close(self) -> None:
        """Give its memory back; the program cannot be used after."""
        ...


@runtime_checkable
class Observer(Program, Protocol):
    """A program that can see the input of every linear layer."""

    def observe(self, tokens: Tokens, past: int) -> Mapping[str, Sums]:
        """Feed tokens and return, by weight name, the sums of squares of each linear's input."""
        ...


@runtime_checkable
class Generator(Program, Protocol):
    """A program on which the sampled token feeds the next step without coming back to Python."""

    def generate(self, token: int, past: int, count: int, sampling: Sampling) -> Iterator[int]:
        """Feed `token` at `past` and yield up to `count` sampled tokens, each fed in turn.

        Raises:
            FloatingPointError: a logit is not finite.
        """
        ...


@dataclass(frozen=True)
class Timing:
    """What one kernel of a step took.

    Attributes:
        label: of the weight or op it is for, such as "ffn_down".
        kernel: its name.
        seconds: from the end of the one before, barriers included.
        nbytes: it reads.
        operations: products and sums with weights; 0 for other kernels.
    """

    label: str
    kernel: str
    seconds: float
    nbytes: int
    operations: int


@dataclass(frozen=True)
class Ceilings:
    """How fast a device was seen to be: bytes read and operations, per second."""

    read: float
    multiply: float


@runtime_checkable
class Profiler(Program, Protocol):
    """A program that can time its kernels."""

    def profile(self, tokens: Tokens, past: int) -> Sequence[Timing]:
        """Feed tokens of one step, compute the last one's logits, and time each kernel.

        Raises:
            DeviceError: the device has no clock.
        """
        ...

    def ceilings(self) -> Ceilings:
        """Measure the device; takes a fraction of a second."""
        ...


class Device(Protocol):
    """Where graphs run.

    Attributes:
        name: as given to `--device`, such as "cpu".
        description: for reports: the hardware and library, with versions.
        activations: the type that linear layers' inputs are rounded to, such as "float32".
        cache: the type of the KV cache, such as "f16".
        threads: of the CPU that compute; 0 for a device that does not compute there.
    """

    name: str
    description: str
    activations: str
    cache: str
    threads: int

    def load(self, graph: Graph, weights: Weights, *, context: int) -> Program:
        """Make a program.

        Raises:
            DeviceError: not enough memory, with the sizes.
        """
        ...


Buffer = int
Recording = int
Ticket = int
Adopted = Callable[[int], object]


class Place(Enum):
    """Where a buffer lives, by who touches it."""

    DEVICE = auto()  # kernels only; `write` and `read` copy
    UPLOAD = auto()  # the host writes often, kernels read: device memory the host sees, if any
    READBACK = auto()  # kernels write, the host reads: cached host memory


class Gpu(Protocol):
    """What a GPU host implements, in buffers and dispatches; handles are its own small integers.

    Submissions run in order, each after the one before has finished and its writes are seen.

    Attributes:
        limits: what it can do.
        description: for reports: the hardware and driver.
        in_place: `adopt` leaves files where they are, so that they take no memory of the GPU's.
    """

    limits: Limits
    description: str
    in_place: bool

    def memory(self) -> tuple[int, int] | None:
        """Return how many bytes buffers can still take, and of how many; None if nobody says."""
        ...

    def adopt(self, ranges: Sequence[memoryview], progress: Adopted) -> Sequence[Buffer]:
        """Make ranges of mapped files readable by kernels, in place where the driver allows.

        While it runs on one thread, another may `prepare` kernels, and do nothing else.

        Args:
            ranges: each becomes one buffer, whose address is that of the range's first byte; at
                most `limits.max_alloc_bytes` each. They are read, never written, and must stay
                mapped until the buffers are freed.
            progress: called with bytes as they are copied.

        Raises:
            DeviceError: no memory, with the sizes.
        """
        ...

    def alloc(self, nbytes: int, place: Place = Place.DEVICE) -> Buffer:
        """Return a zeroed buffer.

        Raises:
            DeviceError: no memory, with the sizes.
        """
        ...

    def address(self, buffer: Buffer) -> int:
        """Return the address of the buffer's first byte, as kernels see it; 16 divides it."""
        ...

    def free(self, buffer: Buffer) -> None:
        """Give a buffer back; nothing that uses it may be running."""
        ...

    def prepare(self, kernels: Sequence[tuple[str, tuple[int, ...]]]) -> None:
        """Start to compile kernels, each with its constants, that will be recorded; do not wait.

        What does not compile is told when it is recorded.
        """
        ...

    def record(self, dispatches: Sequence[Dispatch], *, timed: bool = False) -> Recording:
        """Turn dispatches into something that can be submitted many times.

        Barriers are put where one dispatch depends on an earlier one, and nowhere else.

        Raises:
            DeviceError: a kernel does not compile, with its name and what the driver said.
        """
        ...

    def submit(self, recording: Recording) -> Ticket:
        """Start a recording and return at once; the same may be in flight more than once."""
        ...

    def wait(self, ticket: Ticket) -> Sequence[float]:
        """Wait until it is done; seconds of each dispatch of a timed recording, else empty.

        Raises:
            DeviceError: the device was lost.
        """
        ...

    def discard(self, recording: Recording) -> None:
        """Forget a recording that is not in flight."""
        ...

    def write(self, buffer: Buffer, content: bytes | memoryview, offset: int = 0) -> None:
        """Copy bytes into a buffer, after all that was submitted before has run."""
        ...

    def read(self, buffer: Buffer, nbytes: int, offset: int = 0) -> bytes:
        """Return bytes of a buffer, after all that was submitted before has run."""
        ...

    def peek(self, buffer: Buffer, nbytes: int, offset: int = 0) -> bytes:
        """Return bytes of a READBACK buffer as they are now.

        The caller has waited for the ticket that wrote them; what came later may still be running.
        """
        ...

    def close(self) -> None:
        """Give everything back."""
        ...
