"""Compute only what is asked for: `Rows` moves up as far as the tokens do not see each other.

In a recorded graph `Rows` stands before the last norm. What only it reads, and what only that
reads, needs the same rows, so for a long prompt most of the last layer is computed for one token.
Attention, the cache and what other layers read stay whole.
"""

from edgequant.graph.graph import ROWS, Graph, Node, Value
from edgequant.graph.op import Op
from edgequant.graph.ops.add import Add
from edgequant.graph.ops.bias import Bias
from edgequant.graph.ops.fused_linear import FusedLinear
from edgequant.graph.ops.gate import Gate
from edgequant.graph.ops.linear import Linear
from edgequant.graph.ops.rms_norm import RmsNorm
from edgequant.graph.ops.rows import Rows

BY_TOKEN = (Add, Bias, FusedLinear, Gate, Linear, RmsNorm)  # each token's output is of it alone


def trim(graph: Graph) -> Graph:
    """Return a graph that computes the same logits from fewer tokens' values."""
    late = _late(graph)
    trimmed, made = Graph(), dict[int, Value]()
    rows: dict[int, Value] = {}

    def add(op: Op, inputs: tuple[Value, ...], weights: tuple[str, ...]) -> Value:
        shape = op.shape(*(value.shape for value in inputs))
        output = Value(len(trimmed.nodes), shape)
        trimmed.nodes.append(Node(op, inputs, output, weights))
        return output

    def in_rows(value: Value) -> Value:
        """Return a value's rows; of one that is whole, taken once."""
        whole = made[value.number]
        if whole.shape[0] is ROWS:
            return whole
        if value.number not in rows:
            rows[value.number] = add(Rows(), (whole,), ())
        return rows[value.number]

    for node in graph.nodes:
        if isinstance(node.op, Rows):
            made[node.output.number] = in_rows(node.inputs[0])
            continue
        take = in_rows if node.output.number in late else lambda value: made[value.number]
        inputs = tuple(take(value) for value in node.inputs)
        made[node.output.number] = add(node.op, inputs, node.weights)
    return trimmed


def _late(graph: Graph) -> set[int]:
    """Return the values of which only rows are read, by ops that treat each token alone."""
    readers: dict[int, list[Node]] = {node.output.number: [] for node in graph.nodes}
    for node in graph.nodes:
        for value in node.inputs:
            readers[value.number].append(node)
    late: set[int] = set()
    for node in reversed(graph.nodes):
        number = node.output.number
        if node.output.shape[0] is ROWS or not isinstance(node.op, BY_TOKEN):
            continue
        reading = readers[number]
        if reading and all(isinstance(r.op, Rows) or r.output.number in late for r in reading):
            late.add(number)
    return late
