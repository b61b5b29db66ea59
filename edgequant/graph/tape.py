"""A pass through nodes of a graph that remembers their values, and the way back: gradients.

Reverse accumulation (Griewank and Walther, Evaluating Derivatives, 2008, chapter 3): the gradient
of a value is the sum of what the nodes that read it say of it. All values of a step are held, so
memory grows with tokens and nodes; a graph can be walked in `stretches`. It knows neither losses
nor what becomes of the gradients.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from edgequant.formats.matrix import Matrix
from edgequant.graph.caches import caches
from edgequant.graph.graph import Graph, Node
from edgequant.graph.op import Array, Differentiable, Step


def stretches(graph: Graph) -> list[tuple[Node, ...]]:
    """Cut a graph wherever a single value is alive, so that a stretch reads the one before alone.

    Of a transformer these are the embedding, the attention and the feed-forward of each layer with
    their norms and additions, and what comes after the layers, piece by piece.
    """
    last = graph.last_uses()
    found: list[tuple[Node, ...]] = []
    begin, alive = 0, set[int]()
    for index, node in enumerate(graph.nodes):
        alive = {number for number in (*alive, node.output.number) if last[number] > index}
        if alive <= {node.output.number}:
            found.append(tuple(graph.nodes[begin : index + 1]))
            begin = index + 1
    return found


class Tape:
    """Some nodes, run over whole texts: every step begins with an empty cache.

    Args:
        nodes: in running order, all `Differentiable`; of values made before them they read one, or
            none.
        tokens: of a step, at most.
    """

    def __init__(self, nodes: Sequence[Node], tokens: int) -> None:
        self._nodes = tuple(nodes)
        self._cache = {
            layer: (np.zeros((tokens, *width), np.float32), np.zeros((tokens, *width), np.float32))
            for layer, width in caches(Graph(list(nodes))).items()
        }
        made = {node.output.number for node in nodes}
        self._source = {v.number for node in nodes for v in node.inputs} - made
        self._values: dict[int, Array] = {}

    def forward(
        self, matrices: Mapping[str, Matrix], tokens: NDArray[np.int32], x: Array | None = None
    ) -> Array:
        """Run the tokens of a text and remember.

        Args:
            matrices: the weights, by name.
            tokens: (n,) ids.
            x: the value that is read, (n, columns); None if there is none.

        Returns:
            The last node's output.
        """
        self._step = Step(tokens, 0, len(tokens), self._cache)
        self._matrices = matrices
        self._values = {number: x for number in self._source if x is not None}
        for node in self._nodes:
            inputs = [self._values[value.number] for value in node.inputs]
            weights = [matrices[name] for name in node.weights]
            self._values[node.output.number] = node.op.reference(inputs, weights, self._step)
        return self._values[self._nodes[-1].output.number]

    def backward(self, out: Array, totals: Mapping[str, Array]) -> None:
        """Walk back.

        Args:
            out: the gradient of the last node's output.
            totals: by weight name, of its shape: what gradients are added to. Those of other
                weights are lost.
        """
        found: dict[int, Array] = {self._nodes[-1].output.number: out}
        for node in reversed(self._nodes):
            op = node.op
            assert isinstance(op, Differentiable)  # fused ops, which are not, come after recording
            gradients = op.gradient(
                [self._values[value.number] for value in node.inputs],
                [self._matrices[name] for name in node.weights],
                self._step,
                found.pop(node.output.number),
                [_total(totals, name, self._matrices[name]) for name in node.weights],
            )
            for value, gradient in zip(node.inputs, gradients, strict=True):
                before = found.get(value.number)
                found[value.number] = gradient if before is None else before + gradient


def _total(totals: Mapping[str, Array], name: str, matrix: Matrix) -> Array:
    return totals[name] if name in totals else np.zeros(matrix.shape, np.float32)
