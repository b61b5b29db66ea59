"""What an op will say of its kernel to a GPU: which one, with what bytes, over how many workgroups.

Limits are what a GPU says of itself; a dispatch is one launch bound to buffers. Nothing here knows
an API.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What a GPU can do, as far as the choice of a kernel depends on it."""

    subgroup: int
    workgroup: int
    shared_bytes: int
    max_alloc_bytes: int
    cooperative_matrix: bool
    integer_dot: bool


@dataclass(frozen=True)
class Launch:
    """One kernel with its argument bytes and grid."""

    kernel: str
    arguments: bytes
    workgroups: tuple[int, int, int]


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
    """A launch and the spans it reads and writes, from which barriers are derived."""

    launch: Launch
    reads: tuple[Span, ...]
    writes: tuple[Span, ...]

    def depends_on(self, earlier: "Dispatch") -> bool:
        """Tell whether a barrier must stand between `earlier` and this one."""
        touched = (*self.reads, *self.writes)
        return any(w.overlaps(t) for w in earlier.writes for t in touched) or any(
            r.overlaps(w) for r in earlier.reads for w in self.writes
        )
