"""The memory of one program on a GPU: made at loading, all of it, and given back together.

It knows how much is wanted and says so where it is too much; it knows nothing of steps.
"""

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from itertools import accumulate
from typing import Self

from edgequant.blocks import BlockType, Weights
from edgequant.device.adopted import RANGE, Range, adopt, group
from edgequant.device.protocol import Adopted, Buffer, Gpu, Place
from edgequant.device.recorder import Places
from edgequant.device.step import STEP
from edgequant.errors import DeviceError
from edgequant.graph import Graph
from edgequant.graph.caches import caches
from edgequant.graph.kernels.cache import check_head_dim
from edgequant.graph.launch import Span

_APART = 256  # bytes: no kernel loads wider, and a cache line is not shared


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

    def alloc_together(self, sizes: Sequence[int]) -> list[Span]:
        """Return zeroed spans in as few buffers as can be: a driver takes 0.5 ms to make one."""
        padded = [-(-size // _APART) * _APART for size in sizes]
        spans: list[Span] = []
        while len(spans) < len(sizes):
            ends = list(accumulate(padded[len(spans) :]))
            count = max(1, bisect_right(ends, self._gpu.limits.max_alloc_bytes))
            buffer = self.alloc(ends[count - 1]).buffer
            spans += [
                Span(buffer, offset, size)
                for offset, size in zip([0, *ends[: count - 1]], sizes[len(spans) :], strict=False)
            ]
        return spans

    def adopt(
        self, weights: Weights, ranges: Sequence[Range], progress: Adopted
    ) -> Mapping[str, Span]:
        """Bring tensors to the GPU; return where each lies."""
        buffers, spans = adopt(self._gpu, weights, ranges, progress)
        self._buffers.extend(buffers)
        return spans

    def close(self) -> None:
        """Free all; nothing that uses them may be running."""
        for buffer in self._buffers:
            self._gpu.free(buffer)
        self._buffers.clear()


class Arrival:
    """The weights of a program on their way to a GPU, while it is planned what else is needed.

    A context manager; on leaving it, nothing is copied any more.

    Args:
        resident: gets the buffers, also those made before an error.
        gpu: where; until `settle`, only what may be called beside `adopt` is called.
        name: of the device, for errors.
        graph: whose weights and caches are wanted.
        weights: of the model.
        context: tokens of the KV cache.
        cache: its block type.

    Raises:
        DeviceError: weights and cache alone do not fit, with the sizes.
        UnsupportedError: heads that are not whole blocks of the cache.
    """

    def __init__(
        self,
        resident: Resident,
        gpu: Gpu,
        name: str,
        graph: Graph,
        weights: Weights,
        *,
        context: int,
        cache: BlockType,
    ) -> None:
        self._resident = resident
        self._gpu = gpu
        self._name = name
        self._known = gpu.memory()
        ranges = group(weights, graph.weights, min(RANGE, gpu.limits.max_alloc_bytes))
        self._layers = {}
        for layer, (heads_kv, head_dim) in caches(graph).items():
            check_head_dim(head_dim, cache)
            self._layers[layer] = heads_kv * context * cache.row_nbytes(head_dim)
        self._parts = {
            "weights": sum(len(part.content) for part in ranges),
            f"KV cache ({context:,} tokens)": 2 * sum(self._layers.values()),
        }
        self._check(self._parts)
        self._left = False
        self._thread = ThreadPoolExecutor(1)
        self._spans = self._thread.submit(resident.adopt, weights, ranges, self._go_on)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._left = True
        self._thread.shutdown()

    def _go_on(self, _nbytes: int) -> None:
        """End the copying when nobody waits for it any more, after an error or Ctrl-C."""
        if self._left:
            raise CancelledError

    def settle(self, *, batch: int, arena: int, tables: Collection[bytes]) -> Places:
        """Make all other memory, once the weights are there.

        Args:
            batch: tokens of a step at most.
            arena: bytes of activations and scratch.
            tables: contents that kernels want.

        Raises:
            DeviceError: it does not fit, with the sizes.
        """
        self._check({**self._parts, "scratch": arena})
        spans = self._spans.result()
        alloc, layers = self._resident.alloc, self._layers
        caches = self._resident.alloc_together([*layers.values(), *layers.values()])
        lying = {}
        for content in tables:
            lying[content] = alloc(len(content))
            self._gpu.write(lying[content].buffer, content)
        return Places(
            weights=spans,
            keys=dict(zip(layers, caches[: len(layers)], strict=True)),
            values=dict(zip(layers, caches[len(layers) :], strict=True)),
            step=alloc(STEP.itemsize, Place.UPLOAD),
            tokens=alloc(4 * batch, Place.UPLOAD),
            tables=lying,
            arena=alloc(arena),
        )

    def _check(self, parts: Mapping[str, int]) -> None:
        """Compare with what was free before anything was copied."""
        if self._known is None:
            return
        free, total = self._known
        wanted = sum(parts.values()) - (parts["weights"] if self._gpu.in_place else 0)
        if wanted > free:
            listed = ", ".join(f"{nbytes:,} bytes of {what}" for what, nbytes in parts.items())
            raise DeviceError(
                f"{self._name}: {listed} are wanted; the device has {free:,} free, of {total:,}.",
                hint="use a smaller --ctx, a model of fewer bits, or --device cpu.",
            )
