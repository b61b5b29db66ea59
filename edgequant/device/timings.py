"""What the kernels of a timed step read and compute, so that their speed can be told."""

from collections.abc import Sequence

from edgequant.blocks import Weights
from edgequant.device.protocol import Timing
from edgequant.device.recorder import Recorded
from edgequant.graph import ROWS
from edgequant.graph.launch import Dispatch, Kind
from edgequant.graph.plan import Placed


def tell(
    recorded: Recorded, seconds: Sequence[float], weights: Weights, tokens: int, seen: float
) -> list[Timing]:
    """Return the timings of a step.

    Args:
        recorded: the step's recording.
        seconds: of each dispatch.
        weights: of the model.
        tokens: of the step, without padding.
        seen: share of the KV cache that attention reads.
    """
    return [
        Timing(
            dispatch.label,
            dispatch.kernel,
            taken,
            _bytes_read(placed, dispatch, weights, tokens, seen),
            _operations(placed, weights, tokens),
        )
        for placed, dispatch, taken in zip(
            recorded.launches, recorded.dispatches, seconds, strict=True
        )
    ]


def _looks_up(placed: Placed) -> bool:
    """Tell whether it takes rows of a table instead of reading the table."""
    return not placed.task.inputs


def _bytes_read(
    placed: Placed, dispatch: Dispatch, weights: Weights, tokens: int, seen: float
) -> int:
    """Count each span once: a kernel may be given one address for several arguments."""
    kinds = [operand.kind for operand in placed.launch.operands if operand.reads]
    total = 0.0
    for span, kind in dict(zip(dispatch.reads, kinds, strict=True)).items():
        share = 1.0
        if kind in (Kind.KEYS, Kind.VALUES):
            share = seen
        elif kind is Kind.WEIGHT and _looks_up(placed):
            share = tokens / weights[placed.task.weights[0]].info.rows
        total += share * span.nbytes
    return round(total)


def _operations(placed: Placed, weights: Weights, tokens: int) -> int:
    task = placed.task
    if _looks_up(placed) or not any(o.kind is Kind.WEIGHT for o in placed.launch.operands):
        return 0
    matrices = [weights[name].info for name in task.weights if len(weights[name].shape) > 1]
    count = 1 if task.inputs[0].shape[0] is ROWS else tokens
    return 2 * count * sum(info.weights for info in matrices)
