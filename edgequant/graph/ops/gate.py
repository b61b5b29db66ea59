"""Gate: SiLU of one value times another, the middle of a gated feed-forward layer."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgequant.formats.matrix import Matrix
from edgequant.graph.graph import Shape
from edgequant.graph.kernels import elementwise
from edgequant.graph.launch import Call, Kind, Launch
from edgequant.graph.op import Array, Step


@dataclass(frozen=True)
class Gate:
    """`out = a / (1 + exp(-a)) * b` (SwiGLU; Shazeer, "GLU Variants Improve Transformer", 2020)."""

    def shape(self, a: Shape, b: Shape) -> Shape:
        """Return the common shape."""
        if a != b:
            raise ValueError(f"gate: the shapes {a} and {b} differ")
        return a

    def reference(self, inputs: Sequence[Array], _weights: Sequence[Matrix], _step: Step) -> Array:
        """Compute in one scratch array; exp overflows to infinity where the result is -0."""
        a, b = inputs
        scratch = np.negative(a)
        with np.errstate(over="ignore"):
            np.exp(scratch, out=scratch)
        scratch += np.float32(1)
        np.divide(a, scratch, out=scratch)
        scratch *= b
        return scratch

    def gradient(
        self,
        inputs: Sequence[Array],
        _weights: Sequence[Matrix],
        _step: Step,
        out: Array,
        _totals: Sequence[Array],
    ) -> tuple[Array, ...]:
        """With s = 1 / (1 + exp(-a)): `out b s (1 + a (1 - s))` for a, `out a s` for b."""
        a, b = inputs
        with np.errstate(over="ignore"):
            s = np.float32(1) / (np.float32(1) + np.exp(-a))
        of_b = a * s
        of_a = s + of_b * (np.float32(1) - s)
        of_a *= b
        of_a *= out
        of_b *= out
        return of_a, of_b

    def launch(self, call: Call) -> tuple[Launch, ...]:
        """Return the kernel `gate`."""
        return elementwise.launches("gate", Kind.INPUT, call.inputs[0])
