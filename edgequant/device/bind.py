"""Operands become addresses: a launch, and where its operands lie, make a dispatch.

It knows no op and no API; who calls it knows what an operand of a node is.
"""

from collections.abc import Callable

from edgequant.device.protocol import Buffer
from edgequant.graph.launch import Dispatch, Launch, Operand, Span

Resolve = Callable[[Operand], Span]


def bind(
    launch: Launch, resolve: Resolve, address: Callable[[Buffer], int], label: str = ""
) -> Dispatch:
    """Return the dispatch of a launch.

    Args:
        launch: what an op said.
        resolve: where each operand lies, and how long it is.
        address: of a buffer's first byte, as kernels see it: `Gpu.address`.
        label: what profiles call it.
    """
    spans = [(operand, resolve(operand)) for operand in launch.operands]
    addresses = [address(span.buffer) + span.offset for _, span in spans]
    return Dispatch(
        kernel=launch.kernel,
        constants=launch.constants,
        arguments=b"".join(a.to_bytes(8, "little") for a in addresses) + launch.scalars,
        workgroups=launch.workgroups,
        reads=tuple(span for operand, span in spans if operand.reads),
        writes=tuple(span for operand, span in spans if operand.writes),
        label=label,
    )
