"""StoreKV: put this step's keys and values into the KV cache of a layer."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgequant.formats.matrix import Matrix
from edgequant.graph.graph import Shape
from edgequant.graph.kernels import rotate_store
from edgequant.graph.kernels.cache import Rotation
from edgequant.graph.launch import Call, Launch
from edgequant.graph.op import Array, Step


@dataclass(frozen=True)
class StoreKV:
    """Write keys and values, each (tokens, heads_kv * head_dim), at positions past.. of the cache.

    The output has no elements; it exists so that `Attention`, which takes it, runs after.
    """

    layer: int
    heads_kv: int
    head_dim: int

    def shape(self, keys: Shape, values: Shape) -> Shape:
        """Return (0,)."""
        width = self.heads_kv * self.head_dim
        if keys[-1] != width or values[-1] != width:
            raise ValueError(f"store_kv: {keys[-1]} and {values[-1]} columns, a cache of {width}")
        return (0,)

    def reference(self, inputs: Sequence[Array], _weights: Sequence[Matrix], step: Step) -> Array:
        """Copy."""
        place = slice(step.past, step.past + len(step.tokens))
        for cache, x in zip(step.cache[self.layer], inputs, strict=True):
            cache[place] = x.reshape(-1, self.heads_kv, self.head_dim)
        return np.empty(0, np.float32)

    def gradient(
        self,
        inputs: Sequence[Array],
        _weights: Sequence[Matrix],
        _step: Step,
        out: Array,
        _totals: Sequence[Array],
    ) -> tuple[Array, ...]:
        """Take what `Attention` returns for its second input apart into keys and values."""
        return tuple(part.reshape(x.shape) for part, x in zip(out, inputs, strict=True))

    def launch(self, call: Call) -> tuple[Launch, ...]:
        """One launch, without queries and rotation."""
        heads = rotate_store.Heads(0, self.heads_kv, self.head_dim, self.layer)
        return rotate_store.launches(call, heads, Rotation())
