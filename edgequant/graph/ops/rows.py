"""Rows: keep only the last tokens, those whose logits are wanted."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgequant.formats.matrix import Matrix
from edgequant.graph.graph import ROWS, TOKENS, Shape
from edgequant.graph.kernels import rows
from edgequant.graph.launch import Call, Launch
from edgequant.graph.op import Array, Step


@dataclass(frozen=True)
class Rows:
    """`out = x[-rows:]`, with `rows` of the step."""

    def shape(self, x: Shape) -> Shape:
        """Return (rows, columns)."""
        if x[0] is not TOKENS:
            raise ValueError(f"rows: the first axis of {x} is not tokens")
        return (ROWS, *x[1:])

    def reference(self, inputs: Sequence[Array], _weights: Sequence[Matrix], step: Step) -> Array:
        """Slice."""
        (x,) = inputs
        return x[len(x) - step.rows :]

    def gradient(
        self,
        inputs: Sequence[Array],
        _weights: Sequence[Matrix],
        step: Step,
        out: Array,
        _totals: Sequence[Array],
    ) -> tuple[Array, ...]:
        """Return zeros for the tokens before."""
        of_all = np.zeros_like(inputs[0])
        of_all[len(of_all) - step.rows :] = out
        return (of_all,)

    def launch(self, call: Call) -> tuple[Launch, ...]:
        """Return the kernel `rows`."""
        return rows.launches(call.rows, call.inputs[0][-1])
