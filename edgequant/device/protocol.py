"""The two seams of running: a device runs graphs; a GPU has eight verbs.

`cpu` implements `Device` and is the definition. A GPU host implements `Gpu`; what all GPUs share
(binding, planning, recording, replaying) is written once on top of it. Capabilities beyond
`Program` are protocols of their own, so that an engine that lacks one has no stub for it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
            rows: 1..n.

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
        """Feed `token` at `past` and yield up to `count` sampled tokens, each fed in turn."""
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
Pipeline = int
Recording = int
Ticket = int


class Gpu(Protocol):
    """What a GPU host implements, in buffers and dispatches; handles are its own small integers."""

    limits: Limits

    def adopt(self, mapping: memoryview) -> Sequence[Buffer]:
        """Make a file's mapping readable by kernels, in place where the driver allows."""
        ...

    def alloc(self, nbytes: int) -> Buffer:
        """Return a zeroed buffer."""
        ...

    def pipeline(self, kernel: str) -> Pipeline:
        """Compile, or find in the cache, one kernel."""
        ...

    def record(self, dispatches: Sequence[Dispatch]) -> Recording:
        """Turn dispatches into something that can be submitted many times."""
        ...

    def submit(self, recording: Recording) -> Ticket:
        """Start a recording and return at once."""
        ...

    def wait(self, ticket: Ticket) -> Sequence[float]:
        """Wait until it is done; seconds of each dispatch, empty if they are not measured."""
        ...

    def write(self, buffer: Buffer, content: memoryview) -> None:
        """Copy bytes to the start of a buffer."""
        ...

    def read(self, buffer: Buffer) -> memoryview:
        """Return a buffer's bytes."""
        ...
