"""The memory of one program on a GPU: made at loading, all of it, and given back together.

It knows how much is wanted and says so where it is too much; it knows nothing of steps.
"""

from collections.abc import Collection, Mapping, Sequence

from edgequant.blocks import BlockType, Weights
from edgequant.device.adopted import RANGE, Range, adopt, group
from edgequant.device.protocol import Buffer, Gpu, Place
from edgequant.device.recorder import Places
from edgequant.device.step import STEP
from edgequant.errors import DeviceError
from edgequant.graph import Graph
from edgequant.graph.caches import caches
from edgequant.graph.launch import Span


class Resident:
    """Buffers that are freed together."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._buffers: list[Buffer] = []

    def alloc(self, nbytes: int, where: Place = Place.DEVICE) -> Span:
        """Return a zeroed buffer, whole."""
        buffer = self._gpu.alloc(nbytes, where)
        self._buffers.append(buffer)
        return Span(buffer, 0, nbytes)

    def adopt(self, weights: Weights, ranges: Sequence[Range]) -> Mapping[str, Span]:
        """Bring tensors to the GPU; return where each lies."""
        buffers, spans = adopt(self._gpu, weights, ranges, lambda _nbytes: None)
        self._buffers.extend(buffers)
        return spans

    def close(self) -> None:
        """Free all; nothing that uses them may be running."""
        for buffer in self._buffers:
            self._gpu.free(buffer)
        self._buffers.clear()


def settle(
    resident: Resident,
    gpu: Gpu,
    name: str,
    graph: Graph,
    weights: Weights,
    *,
    context: int,
    cache: BlockType,
    batch: int,
    arena: int,
    tables: Collection[bytes],
) -> Places:
    """Make all memory that a program needs, after seeing that it fits.

    Args:
        resident: gets the buffers, also those made before an error.
        gpu: where.
        name: of the device, for errors.
        graph: whose weights and caches are wanted.
        weights: of the model.
        context: tokens of the KV cache.
        cache: its block type.
        batch: tokens of a step at most.
        arena: bytes of activations and scratch.
        tables: contents that kernels want.

    Raises:
        DeviceError: it does not fit, with the sizes.
    """
    ranges = group(weights, graph.weights, min(RANGE, gpu.limits.max_alloc_bytes))
    layers = {
        layer: heads_kv * context * cache.row_nbytes(head_dim)
        for layer, (heads_kv, head_dim) in caches(graph).items()
    }
    parts = {
        "weights": sum(len(part.content) for part in ranges),
        f"KV cache ({context:,} tokens)": 2 * sum(layers.values()),
        "scratch": arena,
    }
    _check(gpu, name, parts)
    spans = resident.adopt(weights, ranges)
    lying = {}
    for content in tables:
        lying[content] = resident.alloc(len(content))
        gpu.write(lying[content].buffer, content)
    return Places(
        weights=spans,
        keys={layer: resident.alloc(nbytes) for layer, nbytes in layers.items()},
        values={layer: resident.alloc(nbytes) for layer, nbytes in layers.items()},
        step=resident.alloc(STEP.itemsize, Place.UPLOAD),
        tokens=resident.alloc(4 * batch, Place.UPLOAD),
        tables=lying,
        arena=resident.alloc(arena),
    )


def _check(gpu: Gpu, name: str, parts: Mapping[str, int]) -> None:
    known = gpu.memory()
    if known is None:
        return
    free, total = known
    wanted = sum(parts.values()) - (parts["weights"] if gpu.in_place else 0)
    if wanted > free:
        listed = ", ".join(f"{nbytes:,} bytes of {what}" for what, nbytes in parts.items())
        raise DeviceError(
            f"{name}: {listed} are wanted; the device has {free:,} free, of {total:,}.",
            hint="use a smaller --ctx, a model of fewer bits, or --device cpu.",
        )
