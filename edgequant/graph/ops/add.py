"""Add: the sum of two values of one shape, such as a branch and the residual stream."""

from collections.abc import Sequence
from dataclasses import dataclass

from edgequant.formats.matrix import Matrix
from edgequant.graph.graph import Shape
from edgequant.graph.kernels import elementwise
from edgequant.graph.launch import Call, Kind, Launch
from edgequant.graph.op import Array, Step


@dataclass(frozen=True)
class Add:
    """`out = a + b`."""

    def shape(self, a: Shape, b: Shape) -> Shape:
        """Return the common shape."""
        if a != b:
            raise ValueError(f"add: the shapes {a} and {b} differ")
        return a

    def reference(self, inputs: Sequence[Array], _weights: Sequence[Matrix], _step: Step) -> Array:
        """Add."""
        a, b = inputs
        return a + b

    def gradient(
        self,
        _inputs: Sequence[Array],
        _weights: Sequence[Matrix],
        _step: Step,
        out: Array,
        _totals: Sequence[Array],
    ) -> tuple[Array, ...]:
        """Pass it on to both."""
        return out, out

    def launch(self, call: Call) -> tuple[Launch, ...]:
        """Return the kernel `add`."""
        return elementwise.launches("add", Kind.INPUT, call.inputs[0])
