"""What the recordings of a graph are for: logits, filling the cache, sampling, observing.

Each is a sequence of tasks: the graph's own, cut short, or with kernels that no graph has.
"""

from dataclasses import dataclass

from edgequant.device.recorder import Purpose
from edgequant.graph import Graph, Node, Value
from edgequant.graph.caches import STORES
from edgequant.graph.kernels import observe as observe_kernel
from edgequant.graph.kernels import sample as sample_kernel
from edgequant.graph.launch import Span
from edgequant.graph.ops.fused_linear import FusedLinear
from edgequant.graph.plan import Task, tasks_of


@dataclass(frozen=True)
class Watched:
    """An input of linear layers: whose, and where its sums begin among all sums."""

    value: Value
    names: tuple[str, ...]
    offset: int

    @property
    def columns(self) -> int:
        """Sums it has."""
        width = self.value.shape[-1]
        assert isinstance(width, int), "the last axis is never the tokens"
        return width


def watch(graph: Graph) -> tuple[Watched, ...]:
    """Return every distinct input of the linear layers of a fused graph."""
    found: dict[int, tuple[Value, list[str]]] = {}
    for node in graph.nodes:
        if isinstance(node.op, FusedLinear):
            x = node.inputs[0]
            found.setdefault(x.number, (x, []))[1].extend(_matrices(node, node.op))
    watched: list[Watched] = []
    for value, names in found.values():
        end = watched[-1].offset + watched[-1].columns if watched else 0
        watched.append(Watched(value, tuple(names), end))
    return tuple(watched)


def run(graph: Graph, *, exact: bool) -> Purpose:
    """Compute the logits."""
    return Purpose("run", tasks_of(graph), {}, exact)


def fill(graph: Graph, *, exact: bool) -> Purpose:
    """Fill the KV cache, and compute nothing after the last store."""
    stores = [i for i, node in enumerate(graph.nodes) if isinstance(node.op, STORES)]
    return Purpose("fill", tasks_of(graph)[: stores[-1] + 1], {}, exact)


def generate(graph: Graph, ring: Span, *, exact: bool) -> Purpose:
    """Compute the logits of one token, and draw the next from them."""
    logits, drawn = graph.nodes[-1].output, Value(len(graph.nodes), (1,))
    draw = Task("sample", sample_kernel.launches, (logits,), drawn)
    return Purpose("generate", (*tasks_of(graph), draw), {drawn.number: ring}, exact)


def observe(graph: Graph, watched: tuple[Watched, ...], sums: Span) -> Purpose:
    """Add up the squares of what linear layers are given, up to the output layer, left out."""
    by_value = {entry.value.number: entry for entry in watched}
    tasks: list[Task] = []
    outside: dict[int, Span] = {}
    for task in tasks_of(graph)[:-1]:
        tasks.append(task)
        entry = by_value.get(task.output.number)
        if entry is not None:
            total = Value(len(graph.nodes) + len(outside), (entry.columns,))
            tasks.append(Task("observe", observe_kernel.launches, (entry.value,), total))
            outside[total.number] = Span(
                sums.buffer, sums.offset + 4 * entry.offset, 4 * entry.columns
            )
    return Purpose("observe", tuple(tasks), outside, exact=True)


def _matrices(node: Node, op: FusedLinear) -> tuple[str, ...]:
    return node.weights[: 2 if op.gated else 1]
