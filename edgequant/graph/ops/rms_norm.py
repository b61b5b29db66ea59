"""RmsNorm: divide by the root mean square, then scale; over whole rows, or over each head."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgequant.formats.matrix import Matrix
from edgequant.graph.graph import Shape
from edgequant.graph.kernels import rms_norm, vector
from edgequant.graph.launch import Call, Launch
from edgequant.graph.op import Array, Step


@dataclass(frozen=True)
class RmsNorm:
    """`out = x / sqrt(mean(x^2) + epsilon) * weight` over each run of `width` columns.

    The weight is (width,), shared by all runs. `width` is the row for a layer's norm, and the
    head_dim for the norm of queries and keys (Zhang & Sennrich, "Root Mean Square Layer
    Normalization", 2019).
    """

    width: int
    epsilon: float

    def shape(self, x: Shape) -> Shape:
        """Return the input's shape."""
        if not isinstance(x[-1], int) or x[-1] % self.width:
            raise ValueError(f"rms_norm: {x[-1]} columns are not whole runs of {self.width}")
        return x

    def reference(self, inputs: Sequence[Array], weights: Sequence[Matrix], _step: Step) -> Array:
        """Compute in float32, as transformers does."""
        (x,), (weight,) = inputs, weights
        runs = x.reshape(len(x), x.shape[-1] // self.width, self.width)  # also of no tokens
        square = np.mean(np.square(runs), axis=-1, keepdims=True)  # (tokens, runs, 1)
        out: Array = runs * (np.float32(1) / np.sqrt(square + np.float32(self.epsilon)))
        out *= weight.vector()
        return out.reshape(x.shape)

    def gradient(
        self,
        inputs: Sequence[Array],
        weights: Sequence[Matrix],
        _step: Step,
        out: Array,
        totals: Sequence[Array],
    ) -> tuple[Array, ...]:
        """With y = x / rms and g = out weight: `(g - y mean(g y)) / rms`; `sum out y`."""
        (x,), (weight,) = inputs, weights
        runs = x.reshape(len(x), x.shape[-1] // self.width, self.width)
        square = np.mean(np.square(runs), axis=-1, keepdims=True)
        inverse = np.float32(1) / np.sqrt(square + np.float32(self.epsilon))
        normed = runs * inverse
        of_normed = out.reshape(runs.shape)
        totals[0][...] += np.einsum("trc,trc->c", of_normed, normed)
        of_x = of_normed * weight.vector()
        of_x -= normed * np.mean(of_x * normed, axis=-1, keepdims=True)
        of_x *= inverse
        return (of_x.reshape(x.shape),)

    def launch(self, call: Call) -> tuple[Launch, ...]:
        """Return the kernel `rms_norm`."""
        vector.check("rms_norm", call.weights)
        return rms_norm.launches(call, self.width, self.epsilon)
