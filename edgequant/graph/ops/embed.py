"""Embed: token ids become rows of the embedding."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgequant.formats.matrix import Matrix
from edgequant.graph.graph import TOKENS, Shape
from edgequant.graph.kernels import embed
from edgequant.graph.launch import Call, Launch
from edgequant.graph.op import Array, Step


@dataclass(frozen=True)
class Embed:
    """`out[t] = weight[tokens[t]]`; the weight is (vocab, columns)."""

    columns: int

    def shape(self) -> Shape:
        """Return (tokens, columns)."""
        return (TOKENS, self.columns)

    def reference(self, _inputs: Sequence[Array], weights: Sequence[Matrix], step: Step) -> Array:
        """Decode the rows of this step's tokens only."""
        (weight,) = weights
        return weight.take(step.tokens)

    def gradient(
        self,
        _inputs: Sequence[Array],
        _weights: Sequence[Matrix],
        step: Step,
        out: Array,
        totals: Sequence[Array],
    ) -> tuple[Array, ...]:
        """Add each token's to its row."""
        np.add.at(totals[0], step.tokens, out)
        return ()

    def launch(self, call: Call) -> tuple[Launch, ...]:
        """Return the kernel that decodes the weight's format."""
        return embed.launches(call, self.columns)
