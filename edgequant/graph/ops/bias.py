"""Bias: add a vector to every token."""

from collections.abc import Sequence
from dataclasses import dataclass

from edgequant.formats.matrix import Matrix
from edgequant.graph.graph import Shape
from edgequant.graph.kernels import elementwise, vector
from edgequant.graph.launch import Call, Kind, Launch
from edgequant.graph.op import Array, Step


@dataclass(frozen=True)
class Bias:
    """`out[t, c] = x[t, c] + weight[c]`; the weight is (columns,)."""

    columns: int

    def shape(self, x: Shape) -> Shape:
        """Return the input's shape."""
        if x[-1] != self.columns:
            raise ValueError(f"bias: an input of {x[-1]} columns, a weight of {self.columns}")
        return x

    def reference(self, inputs: Sequence[Array], weights: Sequence[Matrix], _step: Step) -> Array:
        """Add."""
        (x,), (weight,) = inputs, weights
        return x + weight.vector()

    def gradient(
        self,
        _inputs: Sequence[Array],
        _weights: Sequence[Matrix],
        _step: Step,
        out: Array,
        totals: Sequence[Array],
    ) -> tuple[Array, ...]:
        """Pass it on; the weight's is its sum over tokens."""
        totals[0][...] += out.sum(axis=0)
        return (out,)

    def launch(self, call: Call) -> tuple[Launch, ...]:
        """Return the kernel `bias`."""
        vector.check("bias", call.weights)
        return elementwise.launches("bias", Kind.WEIGHT, call.inputs[0])
