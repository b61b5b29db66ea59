"""RotateStore: norm and rotate queries and keys, and store keys and values, in one go."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from edgequant.formats.matrix import Matrix
from edgequant.graph.graph import Shape
from edgequant.graph.kernels import rotate_store
from edgequant.graph.kernels.cache import Rotation
from edgequant.graph.launch import Call, Launch
from edgequant.graph.op import Array, Step
from edgequant.graph.ops.rms_norm import RmsNorm
from edgequant.graph.ops.rope import Rope
from edgequant.graph.ops.store_kv import StoreKV


@dataclass(frozen=True)
class RotateStore:
    """The rotated queries, after keys and values have gone to the cache of the layer.

    Inputs are queries, (tokens, heads * head_dim), keys and values, (tokens, heads_kv * head_dim).
    Weights are, where there are norms, (head_dim,) of the queries' and of the keys', and then,
    where there are frequencies, (head_dim / 2,) of rope's factors.

    Attributes:
        layer: of the cache.
        heads: of the queries.
        heads_kv: of keys and values.
        head_dim: width of a head, even.
        base: theta.
        interleaved: see `Rope`.
        stretch: see `Rope`.
        norms: epsilon of the norm of each head of queries and keys; None without.
        frequencies: rope has a weight.
    """

    label: ClassVar[str] = "rope+cache"  # for profiles: the weights it reads say little

    layer: int
    heads: int
    heads_kv: int
    head_dim: int
    base: float
    interleaved: bool
    stretch: float = 1.0
    norms: float | None = None
    frequencies: bool = False

    def shape(self, queries: Shape, keys: Shape, values: Shape) -> Shape:
        """Return the queries' shape."""
        if queries[-1] != self.heads * self.head_dim:
            raise ValueError(
                f"rotate_store: {queries[-1]} columns, {self.heads} heads of {self.head_dim}"
            )
        StoreKV(self.layer, self.heads_kv, self.head_dim).shape(keys, values)
        return queries

    def reference(self, inputs: Sequence[Array], weights: Sequence[Matrix], step: Step) -> Array:
        """Compose the parts."""
        queries, keys, values = inputs
        if self.norms is not None:
            norm = RmsNorm(self.head_dim, self.norms)
            queries = norm.reference((queries,), weights[:1], step)
            keys = norm.reference((keys,), weights[1:2], step)
        rope = Rope(self.head_dim, self.base, self.interleaved, self.stretch)
        factors = weights[-1:] if self.frequencies else ()
        queries = rope.reference((queries,), factors, step)
        keys = rope.reference((keys,), factors, step)
        store = StoreKV(self.layer, self.heads_kv, self.head_dim)
        store.reference((keys, values), (), step)
        return queries

    def launch(self, call: Call) -> tuple[Launch, ...]:
        """One launch."""
        heads = rotate_store.Heads(self.heads, self.heads_kv, self.head_dim, self.layer)
        return rotate_store.launches(call, heads, self.rotation)

    @property
    def rotation(self) -> Rotation:
        """Norms and rope, as kernels take them."""
        rope = Rope(self.head_dim, self.base, self.interleaved, self.stretch)
        return rope.rotation(self.frequencies, self.norms)
