"""RMS norms vanish into the linear layers around them, where a GPU computes one token in integers.

    FusedLinear, RmsNorm, FusedLinear...    -> NormedLinear, NormedLinear...

A step of one token is bound by how many kernels wait for one another, and a norm is one that
computes next to nothing. The layer before rounds its output times the norm's weight, the layers
after divide their rows by the root of the mean square (shaders/lib/normed.slang). What no rewrite
fits stays as it is, and runs. It knows ops, and of weights only their block types.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from edgequant.blocks import BlockType
from edgequant.graph.graph import Graph, Node, Value, numbered
from edgequant.graph.kernels import matvec
from edgequant.graph.kernels.compiled import INTEGERS
from edgequant.graph.launch import Limits
from edgequant.graph.ops.fused_linear import FusedLinear
from edgequant.graph.ops.normed_linear import NormedLinear
from edgequant.graph.ops.rms_norm import RmsNorm

COLUMNS = 64  # of a norm, a multiple: sums of 16 are loaded by four
Types = Mapping[str, BlockType]


def absorb_norms(graph: Graph, types: Types, limits: Limits) -> Graph:
    """Return a graph that computes the same of one token, with fewer kernels.

    Args:
        graph: fused.
        types: block types of its weights.
        limits: of the GPU.
    """
    if not matvec.takes_norms(limits):
        return graph
    readers = defaultdict[int, list[Node]](list)
    for node in graph.nodes:
        for value in node.inputs:
            readers[value.number].append(node)
    nodes = {node.output.number: node for node in graph.nodes}
    for node in graph.nodes:
        norm, after = node.op, readers[node.output.number]
        if not isinstance(norm, RmsNorm) or not _fits(node, norm, readers[node.inputs[0].number]):
            continue
        if not after or not all(_multiplies(reader, node.output, types) for reader in after):
            continue
        (x,) = node.inputs
        for number in {reader.output.number for reader in after}:
            layer = nodes[number]
            inputs = (x, *layer.inputs[1:])
            nodes[number] = _normed(replace(layer, inputs=inputs), node, before=norm.epsilon)
        maker = nodes[x.number]
        if isinstance(maker.op, FusedLinear | NormedLinear) and _in_integers(maker, types):
            nodes[x.number] = _normed(maker, node, after=True)
        del nodes[node.output.number]
    return numbered(nodes.values())


def _fits(node: Node, norm: RmsNorm, others: list[Node]) -> bool:
    """Tell whether a norm is of whole rows, and the only one of its input."""
    alone = sum(isinstance(other.op, RmsNorm) for other in others) == 1
    return alone and norm.width == node.output.shape[-1] and norm.width % COLUMNS == 0


def _multiplies(node: Node, x: Value, types: Types) -> bool:
    """Tell whether a node multiplies x with integers, and does nothing else with it."""
    multiplies = isinstance(node.op, FusedLinear) and x not in node.inputs[1:]
    return multiplies and _in_integers(node, types)


def _in_integers(node: Node, types: Types) -> bool:
    return types[node.weights[0]].name in INTEGERS


def _normed(layer: Node, norm: Node, **changes: Any) -> Node:
    """Give a layer a norm beside it."""
    op = NormedLinear(layer.op) if isinstance(layer.op, FusedLinear) else layer.op
    assert isinstance(op, NormedLinear), "norms stand between linear layers"
    return replace(layer, op=replace(op, **changes), weights=(*layer.weights, *norm.weights))
