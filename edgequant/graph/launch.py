"""What an op says of its kernels: which, with what arguments, over how many workgroups.

A kernel receives one struct: the addresses of its operands, in order, then 32-bit scalars. The
struct is declared here once, as an `Arguments`, beside the op that fills it; `make shaders` prints
it as `shaders/lib/arguments.slang`, so that both sides agree. An op names its operands by what they
are; `device/recorder.py` turns names into addresses. Limits are what a GPU says of itself. Nothing
here knows an API.
"""

import struct
from collections.abc import Set
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property

from edgequant.blocks import BlockType

SCALARS = {"uint": "I", "int": "i", "float": "f"}


@dataclass(frozen=True)
class Limits:
    """What a GPU can do, as far as the choice of a kernel depends on it.

    Attributes:
        subgroup: lanes of a subgroup.
        workgroup: threads of a workgroup at most.
        shared_bytes: memory shared by a workgroup.
        max_alloc_bytes: of one buffer.
        cooperative_matrix: (M, N, K) of float16 matrices with float32 sums that a subgroup
            multiplies; None without.
        integer_dot: it multiplies four int8 at once, in hardware.
    """

    subgroup: int
    workgroup: int
    shared_bytes: int
    max_alloc_bytes: int
    cooperative_matrix: tuple[int, int, int] | None
    integer_dot: bool


class Kind(Enum):
    """What an operand is."""

    INPUT = auto()  # the node's input number `index`, float32 (tokens, columns)
    OUTPUT = auto()  # the node's output, float32
    WEIGHT = auto()  # the node's weight number `index`, as its bytes are in the file
    KEYS = auto()  # the keys of the KV cache of layer `index`
    VALUES = auto()  # the values
    STEP = auto()  # the step record
    TOKENS = auto()  # the ids of this step's tokens, uint32
    SCRATCH = auto()  # `nbytes` shared by the launches of one node, number `index` of them
    DERIVED = auto()  # `nbytes` made of input `index`, or of the output: -1; kept as long as that
    TABLE = auto()  # `content`, made by the op on the host and the same in every step

    __hash__ = object.__hash__  # Enum's hashes a name, in Python; each member is there once


@dataclass(frozen=True)
class Operand:
    """Something whose address a kernel receives, and whether it is read, written or both.

    `nbytes` is given where the node's shapes do not say it: SCRATCH and DERIVED. A DERIVED operand
    is the same memory for every node that derives the same `tag` from the same value, and a launch
    that would only repeat an earlier one is left out: q, k and v share one rounding of their input.
    A TABLE is uploaded once at loading; equal contents are one buffer.
    """

    kind: Kind
    index: int = 0
    reads: bool = True
    writes: bool = False
    nbytes: int = 0
    tag: str = ""
    content: bytes = b""


@dataclass(frozen=True)
class Arguments:
    """The argument struct of a kernel.

    Attributes:
        name: of the Slang struct, such as "MatvecArgs".
        pointers: (field, Slang pointee type) in order, such as ("x", "float").
        scalars: (field, "uint", "int" or "float") in order.
    """

    name: str
    pointers: tuple[tuple[str, str], ...]
    scalars: tuple[tuple[str, str], ...] = ()

    def pack(self, **values: float) -> bytes:
        """Return the bytes of the scalars, all of which must be named."""
        fields, layout = self._layout
        if values.keys() != fields:
            raise ValueError(f"{self.name}: {sorted(values)} are not its scalars")
        return layout.pack(*map(values.__getitem__, fields))

    @cached_property
    def _layout(self) -> tuple[Set[str], struct.Struct]:
        kinds = dict(self.scalars)
        return kinds.keys(), struct.Struct("<" + "".join(map(SCALARS.__getitem__, kinds.values())))

    def slang(self) -> str:
        """Return the struct as Slang source."""
        fields = [f"    {pointee}* {field};" for field, pointee in self.pointers]
        fields += [f"    {kind} {field};" for field, kind in self.scalars]
        return "\n".join((f"struct {self.name}", "{", *fields, "};", ""))


@dataclass(frozen=True)
class Launch:
    """One kernel with its operands and grid.

    Attributes:
        kernel: stem of its compiled file, such as "matvec_q4_k".
        operands: in the order of its struct's pointers.
        scalars: what `Arguments.pack` returned.
        workgroups: of the grid; none may depend on `past`.
        constants: of specialization, by their number in the source: 0, 1, 2 and so on.
    """

    kernel: str
    operands: tuple[Operand, ...]
    scalars: bytes
    workgroups: tuple[int, int, int]
    constants: tuple[int, ...] = ()


@dataclass(frozen=True)
class Call:
    """What a recording asks of an op.

    Attributes:
        tokens: rows of the token axis: the recording's bucket; the step record has how many count.
        rows: rows of logits at most.
        context: the tokens attention may see at most in this recording; `past + tokens` is below.
        capacity: tokens the KV cache has room for, from which its strides follow.
        weights: block types of the node's weights.
        cache: block type of the KV cache: F16, Q8_0 or F32.
        limits: of the GPU.
        inputs: shapes of the node's inputs, their first axis bound to `tokens` or `rows`.
        wants: the DERIVED operands that later nodes derive from this node's output, index -1; who
            can write one beside its output does, and the launch that would have is left out.
        exact: keep activations in float32, although the GPU is faster on int8 or float16.
    """

    tokens: int
    rows: int
    context: int
    capacity: int
    weights: tuple[BlockType, ...]
    cache: BlockType
    limits: Limits
    inputs: tuple[tuple[int, ...], ...] = ()
    wants: tuple[Operand, ...] = ()
    exact: bool = False


@dataclass(frozen=True)
class Span:
    """A range of one buffer."""

    buffer: int
    offset: int
    nbytes: int

    def overlaps(self, other: "Span") -> bool:
        """Tell whether two spans share a byte."""
        return (
            self.buffer == other.buffer
            and self.offset < other.offset + other.nbytes
            and other.offset < self.offset + self.nbytes
        )


@dataclass(frozen=True)
class Dispatch:
    """A launch whose operands have addresses, and the spans from which barriers are derived.

    `arguments` is the whole struct: addresses, then scalars. `label` is for profiles.
    """

    kernel: str
    constants: tuple[int, ...]
    arguments: bytes
    workgroups: tuple[int, int, int]
    reads: tuple[Span, ...]
    writes: tuple[Span, ...]
    label: str = ""

    def depends_on(self, earlier: "Dispatch") -> bool:
        """Tell whether a barrier must stand between `earlier` and this one."""
        touched = (*self.reads, *self.writes)
        return any(w.overlaps(t) for w in earlier.writes for t in touched) or any(
            r.overlaps(w) for r in earlier.reads for w in self.writes
        )
