"""Between which dispatches a barrier must stand: where one depends on another, and nowhere else.

Kernels may run at the same time until one touches bytes that an earlier one has written, or writes
what an earlier one reads. It knows spans of buffers, and no API.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from edgequant.graph.launch import Dispatch, Span


class Touched:
    """Which bytes of which buffers were touched; sorted, disjoint spans, found by bisection."""

    def __init__(self) -> None:
        self._starts: dict[int, list[int]] = {}
        self._ends: dict[int, list[int]] = {}

    def meets(self, spans: Iterable[Span]) -> bool:
        """Tell whether one of the spans shares a byte with what was touched."""
        for span in spans:
            ends = self._ends.get(span.buffer)
            if ends is None:
                continue
            i = bisect_right(ends, span.offset)  # the first that ends after the span starts
            if i < len(ends) and self._starts[span.buffer][i] < span.offset + span.nbytes:
                return True
        return False

    def add(self, spans: Iterable[Span]) -> None:
        """Note spans, joined with those they meet or touch."""
        for span in spans:
            starts = self._starts.setdefault(span.buffer, [])
            ends = self._ends.setdefault(span.buffer, [])
            start, end = span.offset, span.offset + span.nbytes
            first, last = bisect_left(ends, start), bisect_right(starts, end)
            if first < last:
                start, end = min(start, starts[first]), max(end, ends[last - 1])
            starts[first:last], ends[first:last] = [start], [end]


def barriers(dispatches: Sequence[Dispatch]) -> list[bool]:
    """Tell before which dispatches a barrier stands: where one depends on one since the last."""
    places = []
    read, written = Touched(), Touched()
    for dispatch in dispatches:
        touched = (*dispatch.reads, *dispatch.writes)
        needed = written.meets(touched) or read.meets(dispatch.writes)
        if needed:
            read, written = Touched(), Touched()
        places.append(needed)
        read.add(dispatch.reads)
        written.add(dispatch.writes)
    return places
