"""The CPU through NumPy: walk the graph, call each op's reference. It is the meaning of a graph.

Everything is float32. Weights are decoded once and kept while they fit a share of the free memory;
those that do not fit are decoded in row chunks each time they are used. It knows no model and no
text.
"""

import os
from collections.abc import Callable, Mapping
from math import prod

import numpy as np

from edgequant.blocks import Weights
from edgequant.device import Choice, Entry
from edgequant.device.memory import available_bytes
from edgequant.device.protocol import Sums, Tokens
from edgequant.errors import DeviceError
from edgequant.formats.format import find
from edgequant.formats.matrix import Matrix
from edgequant.graph import Array, Graph, Node, Step
from edgequant.graph.caches import caches
from edgequant.graph.ops.linear import Linear

KEPT_SHARE = 0.5  # of the memory that is free at load; the rest is for the cache and activations

Watch = Callable[[Node, Array], None]


class CpuProgram:
    """A graph with its weights; both `Program` and `Observer`."""

    def __init__(self, graph: Graph, weights: Weights, *, context: int) -> None:
        self.context = context
        self._nodes = tuple(graph.nodes)
        self._last_uses = graph.last_uses()
        free = available_bytes()
        heads = caches(graph)
        cache_bytes = sum(2 * 4 * context * prod(width) for width in heads.values())
        if cache_bytes > free:
            raise _too_large(context, cache_bytes, free)
        self._matrices = _keep(
            graph, {name: Matrix(weights[name]) for name in graph.weights}, free, cache_bytes
        )
        try:
            self._cache = {
                layer: (_zeros(context, width), _zeros(context, width))
                for layer, width in heads.items()
            }
        except MemoryError:
            raise _too_large(context, cache_bytes, free) from None

    def run(self, tokens: Tokens, past: int, *, rows: int = 1) -> Array:
        """Feed tokens and return the logits of the last `rows`; see `Program`."""
        return self._walk(self._step(tokens, past, rows), self._nodes, None)

    def observe(self, tokens: Tokens, past: int) -> Mapping[str, Sums]:
        """Feed tokens and return the sums of each linear's input; see `Observer`.

        The output layer's input is seen for every token, but its product is not computed.
        """
        sums: dict[str, Sums] = {}
        by_value: dict[int, Array] = {}

        def watch(node: Node, x: Array) -> None:
            if node.inputs[0].number not in by_value:  # q, k and v share one input
                total = np.einsum("tc,tc->c", x, x, dtype=np.float64)
                by_value[node.inputs[0].number] = total.astype(np.float32)
            (name,) = node.weights
            sums[name] = Sums(by_value[node.inputs[0].number], len(x))

        step = self._step(tokens, past, len(tokens))
        values = self._walk(step, self._nodes[:-1], watch)
        watch(self._nodes[-1], values)
        return sums

    def close(self) -> None:
        """Drop the weights and the cache."""
        self._matrices = {}
        self._cache = {}

    def _step(self, tokens: Tokens, past: int, rows: int) -> Step:
        count = len(tokens)
        if not (past >= 0 and 0 <= rows <= count and 0 < count <= self.context - past):
            raise ValueError(
                f"{count} tokens after {past}, {rows} rows, in a context of {self.context}"
            )
        return Step(np.asarray(tokens, np.int32), past, rows, self._cache)

    def _walk(self, step: Step, nodes: tuple[Node, ...], watch: Watch | None) -> Array:
        """Compute the nodes in order; what is not finite ends in logits that are not."""
        try:
            with np.errstate(invalid="ignore", over="ignore"):
                return self._compute(step, nodes, watch)
        except MemoryError:
            raise DeviceError(
                f"cpu: no memory for a step of {len(step.tokens):,} tokens after {step.past:,}; "
                f"{available_bytes():,} bytes are free.",
                hint="use a smaller --ctx, or close other programs.",
            ) from None

    def _compute(self, step: Step, nodes: tuple[Node, ...], watch: Watch | None) -> Array:
        """Compute the nodes in order, dropping each value after its last use."""
        values: dict[int, Array] = {}
        for index, node in enumerate(nodes):
            inputs = [values[value.number] for value in node.inputs]
            if watch is not None and isinstance(node.op, Linear):
                watch(node, inputs[0])
            matrices = [self._matrices[name] for name in node.weights]
            values[node.output.number] = node.op.reference(inputs, matrices, step)
            for value in node.inputs:
                if self._last_uses[value.number] == index:
                    values.pop(value.number, None)
        return values[nodes[-1].output.number]


class CpuDevice:
    """This machine's processor."""

    name = "cpu"
    activations = "float32"
    cache = "f32"

    def __init__(self) -> None:
        self.threads = _threads()
        self.description = f"NumPy {np.__version__}, {_blas()}, {self.threads} threads"

    def load(self, graph: Graph, weights: Weights, *, context: int) -> CpuProgram:
        """Make a program; see `Device`."""
        return CpuProgram(graph, weights, context=context)


def _keep(
    graph: Graph, matrices: dict[str, Matrix], free: int, cache_bytes: int
) -> dict[str, Matrix]:
    """Decode the weights of linear layers, in order of use, while they fit the budget.

    Small vectors are decoded anyway; a table that is only looked up stays as it is.
    """
    budget = int(KEPT_SHARE * free) - cache_bytes
    linears = [node for node in graph.nodes if isinstance(node.op, Linear)]
    multiplied = {name for node in linears for name in node.weights}
    for name, matrix in matrices.items():
        find(matrix.weight.type.name)  # a format we cannot decode is refused before anything runs
        size = 4 * matrix.weight.info.weights
        vector = len(matrix.shape) == 1
        if vector or (name in multiplied and size <= budget):
            matrices[name] = matrix.kept()
            budget -= size
    return matrices


def _zeros(context: int, width: tuple[int, int]) -> Array:
    """Return keys or values of a layer; the system gives the pages when they are written."""
    return np.zeros((context, *width), np.float32)


def _too_large(context: int, wanted: int, free: int) -> DeviceError:
    return DeviceError(
        f"cpu: the KV cache of a context of {context:,} takes {wanted:,} bytes; {free:,} are free.",
        hint="use a smaller --ctx.",
    )


def _blas() -> str:
    config: object = np.show_config(mode="dicts")
    for key in ("Build Dependencies", "blas", "name"):
        config = config.get(key) if isinstance(config, dict) else None
    return str(config or "unknown BLAS")


def _threads() -> int:
    """Return how many threads BLAS uses, as far as its environment variables say."""
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        if os.environ.get(name, "").isdecimal():
            return int(os.environ[name])
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _open(index: str, _choice: Choice) -> CpuDevice:
    if index not in ("", "0"):
        raise DeviceError(f"cpu:{index}: there is only one CPU device.", hint="use --device cpu.")
    return CpuDevice()


DEVICE = Entry(name="cpu", rank=90, missing=lambda: None, open=_open, observes=True)
