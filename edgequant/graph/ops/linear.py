"""Linear: multiply with a weight matrix. Its input is what an importance matrix observes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgequant.formats.matrix import Matrix
from edgequant.graph.graph import Shape
from edgequant.graph.op import Array, Step


@dataclass(frozen=True)
class Linear:
    """`out[t, r] = sum_c x[t, c] * weight[r, c]`; the weight is (rows, columns)."""

    columns: int
    rows: int

    def shape(self, x: Shape) -> Shape:
        """Return (tokens, rows)."""
        if x[-1] != self.columns:
            raise ValueError(f"linear: an input of {x[-1]} columns, a weight of {self.columns}")
        return (*x[:-1], self.rows)

    def reference(self, inputs: Sequence[Array], weights: Sequence[Matrix], _step: Step) -> Array:
        """Multiply chunk by chunk of weight rows, so that few are decoded at a time."""
        (x,), (weight,) = inputs, weights
        out = np.empty((len(x), self.rows), np.float32)
        for first, rows in weight.chunks():
            np.matmul(x, rows.T, out=out[:, first : first + len(rows)])
        return out

    def gradient(
        self,
        inputs: Sequence[Array],
        weights: Sequence[Matrix],
        _step: Step,
        out: Array,
        totals: Sequence[Array],
    ) -> tuple[Array, ...]:
        """Multiply with the weight for the input, with the input for the weight."""
        (x,), (weight,) = inputs, weights
        of_x = np.zeros_like(x)
        for first, rows in weight.chunks():
            of_x += out[:, first : first + len(rows)] @ rows
        totals[0][...] += out.T @ x
        return (of_x,)
