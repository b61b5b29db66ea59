"""Tells the pretend runtime what the dispatches of a GPU touch, when they are recorded."""

from collections.abc import Iterable, Sequence
from typing import Any

from edgequant.device.protocol import Gpu
from edgequant.graph.launch import Dispatch, Span
from pretend_metal.hazards import Declared, Range


def declare(gpu: Gpu, declared: Declared) -> None:
    """Let a GPU tell, from now on, what its dispatches read and write."""
    record = gpu.record

    def ranges(spans: Iterable[Span]) -> list[Range]:
        starts = ((gpu.address(span.buffer) + span.offset, span.nbytes) for span in spans)
        return [(start, start + nbytes) for start, nbytes in starts]

    def telling(dispatches: Sequence[Dispatch], **options: Any) -> int:
        for dispatch in dispatches:
            reads, writes = ranges(dispatch.reads), ranges(dispatch.writes)
            struct = dispatch.arguments + bytes(-len(dispatch.arguments) % 8)
            declared.declare(struct, dispatch.workgroups, reads, writes)
        return record(dispatches, **options)

    gpu.record = telling  # type: ignore[method-assign]
