"""Rewrites of a graph for GPUs: fewer nodes, the same meaning.

    Linear                                        -> FusedLinear
    FusedLinear, Bias                             -> FusedLinear with a bias
    FusedLinear, FusedLinear, Gate                -> FusedLinear, gated
    FusedLinear, Add                              -> FusedLinear with a residual
    norms, Rope, Rope, StoreKV                    -> RotateStore
    RotateStore, Attention                        -> RotateAttend

A value that two nodes read is never fused away. What no rewrite fits stays as it is, and runs. A
linear layer's input stays a value of its own, so that it can be observed. It knows ops, and of
weights only their block types.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeGuard

from edgequant.blocks import BlockType
from edgequant.graph.graph import Graph, Node, Value, numbered
from edgequant.graph.op import Op
from edgequant.graph.ops.add import Add
from edgequant.graph.ops.attention import Attention
from edgequant.graph.ops.bias import Bias
from edgequant.graph.ops.fused_linear import FusedLinear
from edgequant.graph.ops.gate import Gate
from edgequant.graph.ops.linear import Linear
from edgequant.graph.ops.rms_norm import RmsNorm
from edgequant.graph.ops.rope import Rope
from edgequant.graph.ops.rotate_attend import RotateAttend
from edgequant.graph.ops.rotate_store import RotateStore
from edgequant.graph.ops.store_kv import StoreKV

Types = Mapping[str, BlockType]


def fuse(graph: Graph, types: Types) -> Graph:
    """Return a graph of fused ops that computes the same.

    Args:
        graph: as an architecture recorded it.
        types: block types of its weights.
    """
    nodes = [_linear(node) for node in graph.nodes]
    for rewrite in (_bias, _gate, _residual, _rotate_store, _rotate_attend):
        nodes = _apply(rewrite, nodes, types)
    return numbered(nodes)


class _Uses:
    """Who makes a value and who reads it; the last value is also read by whoever runs the graph."""

    def __init__(self, nodes: list[Node], types: Types) -> None:
        self.types = types
        self._makers = {node.output.number: node for node in nodes}
        self._readers = defaultdict[int, list[Node]](list)
        for node in nodes:
            for value in node.inputs:
                self._readers[value.number].append(node)
        self._last = nodes[-1].output.number

    def maker(self, value: Value) -> Node:
        """Return the node whose output it is."""
        return self._makers[value.number]

    def reader(self, value: Value) -> Node | None:
        """Return the only node that reads it; None if it is read more than once, or outside."""
        readers = self._readers[value.number]
        return readers[0] if len(readers) == 1 and value.number != self._last else None

    def only(self, node: Node, value: Value) -> bool:
        """Tell whether nothing but the node reads it, however often."""
        return value.number != self._last and all(
            reader.output == node.output for reader in self._readers[value.number]
        )


# What a node becomes, and the nodes that vanish into it; None where a rewrite does not fit.
_Fit = tuple[Node, tuple[Node, ...]] | None


def _apply(rewrite: Callable[[Node, _Uses], _Fit], nodes: list[Node], types: Types) -> list[Node]:
    """Rewrite each node that fits. The fused node stands where that node stood.

    What still reads a node that vanished reads the fused node instead.
    """
    uses = _Uses(nodes, types)
    fits = {node.output.number: fit for node in nodes if (fit := rewrite(node, uses)) is not None}
    gone: set[int] = set()
    instead: dict[int, Value] = {}
    for fused, parts in fits.values():
        gone |= {part.output.number for part in parts}
        instead |= {node.output.number: fused.output for node in (fused, *parts)}
    kept = []
    for node in nodes:
        if node.output.number not in gone:
            found = fits[node.output.number][0] if node.output.number in fits else node
            inputs = tuple(instead.get(value.number, value) for value in found.inputs)
            kept.append(found if inputs == found.inputs else replace(found, inputs=inputs))
    return kept


def _linear(node: Node) -> Node:
    if isinstance(node.op, Linear):
        return replace(node, op=FusedLinear(node.op.columns, node.op.rows))
    return node


def _bias(node: Node, uses: _Uses) -> _Fit:
    if not isinstance(node.op, Bias):
        return None
    linear = uses.maker(node.inputs[0])
    op = linear.op
    if not _bare(op) or uses.reader(linear.output) is None:
        return None
    weights = linear.weights + node.weights
    fused = replace(node, op=replace(op, bias=True), inputs=linear.inputs, weights=weights)
    return fused, (linear,)


def _gate(node: Node, uses: _Uses) -> _Fit:
    if not isinstance(node.op, Gate):
        return None
    gate, up = map(uses.maker, node.inputs)
    op = gate.op
    if not _bare(op) or (up.op, up.inputs) != (op, gate.inputs):
        return None
    weights = gate.weights + up.weights
    if len({uses.types[name] for name in weights}) > 1:
        return None
    if uses.reader(gate.output) is None or uses.reader(up.output) is None:
        return None
    fused = replace(node, op=replace(op, gated=True), inputs=gate.inputs, weights=weights)
    return fused, (gate, up)


def _bare(op: Op) -> TypeGuard[FusedLinear]:
    """Tell whether it is a linear layer to which nothing was fused yet."""
    return isinstance(op, FusedLinear) and op == FusedLinear(op.columns, op.rows)


def _residual(node: Node, uses: _Uses) -> _Fit:
    """Take the addend that is a linear layer, the later one if both are."""
    if not isinstance(node.op, Add):
        return None
    early, late = sorted(node.inputs, key=lambda value: value.number)
    for branch, stream in ((late, early), (early, late)):
        linear = uses.maker(branch)
        op = linear.op
        if isinstance(op, FusedLinear) and not op.residual and uses.reader(branch) is not None:
            inputs = (*linear.inputs, stream)
            op = replace(op, residual=True)
            return replace(node, op=op, inputs=inputs, weights=linear.weights), (linear,)
    return None


def _rotate_store(node: Node, uses: _Uses) -> _Fit:
    """Take what is between the projections and attention, where q and k are treated alike."""
    store = node.op
    attention = uses.reader(node.output)
    if not isinstance(store, StoreKV) or attention is None:
        return None
    attend, keys = attention.op, uses.maker(node.inputs[0])
    queries = uses.maker(attention.inputs[0])
    rope = keys.op
    if not isinstance(attend, Attention) or not isinstance(rope, Rope):
        return None
    if (queries.op, queries.weights) != (rope, keys.weights):
        return None
    parts, norms = [queries, keys], [uses.maker(x.inputs[0]) for x in (queries, keys)]
    norm = norms[0].op
    normed = isinstance(norm, RmsNorm) and norm.width == rope.head_dim and norms[1].op == norm
    if normed:
        parts += norms
    if any(uses.reader(part.output) is None for part in parts):
        return None
    (q,), (k,) = (side.inputs for side in (norms if normed else parts))
    if q.number > node.output.number:  # not there yet where the keys are stored
        return None
    fused = RotateStore(
        store.layer, attend.heads, store.heads_kv, store.head_dim, rope.base, rope.interleaved,
        rope.stretch, norm.epsilon if isinstance(norm, RmsNorm) and normed else None,
        bool(keys.weights),
    )  # fmt: skip
    weights = (*(norms[0].weights + norms[1].weights if normed else ()), *keys.weights)
    inputs = (q, k, node.inputs[1])
    return Node(fused, inputs, replace(node.output, shape=q.shape), weights), tuple(parts)


def _rotate_attend(node: Node, uses: _Uses) -> _Fit:
    if not isinstance(node.op, Attention):
        return None
    rotate = uses.maker(node.inputs[0])
    if not isinstance(rotate.op, RotateStore):
        return None
    fused = RotateAttend(rotate.op)
    if fused.attend != node.op or not uses.only(node, rotate.output):
        return None
    return replace(node, op=fused, inputs=rotate.inputs, weights=rotate.weights), (rotate,)
