"""What dispatches read and write, told by who knows, and whether any two need a barrier.

Metal sees addresses alone. What a kernel touches is known where dispatches are made, so a test
tells it (`declare`) before they are encoded; then two dispatches of a concurrent encoder that touch
the same bytes, one of them writing, are refused unless a barrier stands between them. So is a write
to what was declared to be read.
"""

from collections.abc import Iterable, Mapping

from pretend_metal.memory import Buffer
from pretend_metal.refused import Refused

Range = tuple[int, int]
Key = tuple[bytes, tuple[int, int, int]]
WRITE = 2


class Declared:
    """The ranges of addresses, from and to, that dispatches read and write."""

    def __init__(self) -> None:
        self._known: dict[Key, tuple[list[Range], list[Range]]] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def declare(
        self,
        arguments: bytes,
        groups: tuple[int, int, int],
        reads: Iterable[Range],
        writes: Iterable[Range],
    ) -> None:
        """Say what the dispatches with these arguments and threadgroups touch."""
        self._known[arguments, groups] = (list(reads), list(writes))

    def of(self, arguments: bytes, groups: tuple[int, int, int]) -> tuple[list[Range], list[Range]]:
        """Return what was said of a dispatch.

        Raises:
            Refused: nothing was.
        """
        if (arguments, groups) not in self._known:
            raise Refused("a dispatch was encoded that nobody recorded")
        return self._known[arguments, groups]

    def segment(self) -> "Segment":
        """Return an empty run of dispatches that no barrier separates."""
        return Segment(self)


class Segment:
    """Dispatches that no barrier separates."""

    def __init__(self, declared: Declared) -> None:
        self._declared = declared
        self._reads: list[tuple[Range, str]] = []
        self._writes: list[tuple[Range, str]] = []

    def add(
        self,
        entry: str,
        arguments: bytes,
        groups: tuple[int, int, int],
        usage: Mapping[Buffer, int],
    ) -> list[tuple[int, int, bool]]:
        """Take one more dispatch; return the ranges that it touches, and whether it writes them.

        Raises:
            Refused: it depends on one that is here already, or writes what may only be read.
        """
        reads, writes = self._declared.of(arguments, groups)
        for start, end in writes:
            for buffer, allowed in usage.items():
                inside = buffer.address <= start < buffer.address + buffer.length
                if inside and not allowed & WRITE:
                    raise Refused(f"{entry} writes {buffer!r}, which was declared to be read")
                if inside and end > buffer.address + buffer.length:
                    raise Refused(f"{entry} writes past the end of {buffer!r}")
        for mine, theirs in ((reads + writes, self._writes), (writes, self._reads)):
            for start, end in mine:
                for (low, high), other in theirs:
                    if start < high and low < end:
                        raise Refused(
                            f"{entry} follows {other} on the same bytes without a barrier"
                        )
        self._reads += [(span, entry) for span in reads]
        self._writes += [(span, entry) for span in writes]
        both = [(reads, False), (writes, True)]
        return [(low, high, way) for spans, way in both for low, high in spans if low < high]
