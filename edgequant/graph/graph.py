"""The graph: values in single assignment, nodes in the order they run.

Built by `Architecture.record`, read by devices. It knows ops only by their protocol, and weights
only by name.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from edgequant.graph.op import Op


class Axis(Enum):
    """An axis whose length is known only when a step runs."""

    TOKENS = "tokens"
    ROWS = "rows"  # the last tokens, whose logits are wanted


TOKENS, ROWS = Axis.TOKENS, Axis.ROWS
Shape = tuple[int | Axis, ...]


@dataclass(frozen=True)
class Value:
    """The output of one node; `number` is its place in the graph."""

    number: int
    shape: Shape


@dataclass(frozen=True)
class Node:
    """One op applied to values and weights: none or one, several where ops were fused."""

    op: Op
    inputs: tuple[Value, ...]
    output: Value
    weights: tuple[str, ...] = ()


@dataclass
class Graph:
    """Nodes in running order; the last node's output is the logits, (ROWS, vocab)."""

    nodes: list[Node] = field(default_factory=list)

    def add(self, op: Op, *inputs: Value, weight: str | None = None) -> Value:
        """Append a node and return its output."""
        value = Value(len(self.nodes), op.shape(*(v.shape for v in inputs)))
        self.nodes.append(Node(op, inputs, value, () if weight is None else (weight,)))
        return value

    @property
    def weights(self) -> tuple[str, ...]:
        """Names of the weights the graph reads, in order of first use."""
        return tuple(dict.fromkeys(name for node in self.nodes for name in node.weights))

    def last_uses(self) -> dict[int, int]:
        """Return, by value number, the index of the last node that reads (or makes) it."""
        last = {node.output.number: i for i, node in enumerate(self.nodes)}
        for i, node in enumerate(self.nodes):
            for value in node.inputs:
                last[value.number] = i
        return last


def numbered(nodes: Iterable[Node]) -> Graph:
    """Return a graph of nodes, in order, whose values had any numbers."""
    graph, made = Graph(), dict[int, Value]()
    for node in nodes:
        output = replace(node.output, number=len(graph.nodes))
        inputs = tuple(made[value.number] for value in node.inputs)
        made[node.output.number] = output
        graph.nodes.append(replace(node, inputs=inputs, output=output))
    return graph
