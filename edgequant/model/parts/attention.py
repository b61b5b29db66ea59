"""Attention with rotary positions: grouped heads, with or without biases and query-key norms."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgequant.graph import Graph, Value
from edgequant.graph.ops.attention import Attention as Attend
from edgequant.graph.ops.rms_norm import RmsNorm
from edgequant.graph.ops.rope import Rope
from edgequant.graph.ops.store_kv import StoreKV
from edgequant.model.hparams import HParams
from edgequant.model.parts.projection import Projection
from edgequant.model.tensors import Read, Role, TensorSpec, Transform, keep

QUERY = Projection(Role.ATTN_Q, "self_attn.q_proj")
KEY = Projection(Role.ATTN_K, "self_attn.k_proj")
VALUE = Projection(Role.ATTN_V, "self_attn.v_proj")
OUT = Projection(Role.ATTN_OUTPUT, "self_attn.o_proj")
Sized = tuple[Projection, tuple[int, int], bool]  # with its (rows, columns), and whether biased


def interleave(head_dim: int) -> Transform:
    """Return the reordering of query and key rows that makes rope's pairs neighbours.

    Row i of the first half and row i of the second half of each head become rows 2i and 2i + 1.
    Source: the permutation in llama.cpp's conversion of llama (0c1e57098).
    """

    def rows(read: Read, _shape: tuple[int, ...], start: int, stop: int) -> NDArray[np.generic]:
        first = start // head_dim * head_dim
        heads = read(first, -(-stop // head_dim) * head_dim)  # whole heads around the chunk
        halves = heads.reshape(-1, 2, head_dim // 2, *heads.shape[1:])
        return halves.swapaxes(1, 2).reshape(heads.shape)[start - first : stop - first]

    return rows


@dataclass(frozen=True)
class RopeAttention:
    """Causal attention over rotated queries and keys.

    Attributes:
        interleaved: queries and keys are reordered at conversion so that rope's pairs are
            neighbours on disk; otherwise they stay in halves.
        bias: queries, keys and values always have a bias; `h.attention_bias` gives one to all four.
        norms: each head of queries and keys is normed before it is rotated.
    """

    interleaved: bool
    bias: bool = False
    norms: bool = False

    def tensors(self, h: HParams, layer: int) -> Iterator[TensorSpec]:
        """Yield the four projections, and the two norms."""
        rotated = interleave(h.head_dim) if self.interleaved else keep
        for projection, shape, bias in self._projections(h):
            prepare = rotated if projection in (QUERY, KEY) else keep
            yield from projection.tensors(layer, shape, bias=bias, prepare=prepare)
        if self.norms:
            for role, name in ((Role.ATTN_Q_NORM, "q_norm"), (Role.ATTN_K_NORM, "k_norm")):
                yield TensorSpec(
                    f"blk.{layer}.{role.value}.weight",
                    f"model.layers.{layer}.self_attn.{name}.weight",
                    (h.head_dim,),
                    role,
                    layer,
                )

    def emit(self, graph: Graph, x: Value, h: HParams, layer: int) -> Value:
        """Append projections, norms, rotation, the cache and attention."""
        (query, key, value, out) = self._projections(h)

        def project(x: Value, sized: Sized) -> Value:
            projection, shape, bias = sized
            return projection.emit(graph, x, layer, shape, bias=bias)

        q = self._rotate(graph, project(x, query), h, layer, Role.ATTN_Q_NORM)
        k = self._rotate(graph, project(x, key), h, layer, Role.ATTN_K_NORM)
        stored = graph.add(StoreKV(layer, h.heads_kv, h.head_dim), k, project(x, value))
        mixed = graph.add(Attend(layer, h.heads, h.heads_kv, h.head_dim), q, stored)
        return project(mixed, out)

    def _projections(self, h: HParams) -> tuple[Sized, Sized, Sized, Sized]:
        bias = self.bias or h.attention_bias
        wide, narrow = h.heads * h.head_dim, h.heads_kv * h.head_dim
        return (
            (QUERY, (wide, h.embed), bias),
            (KEY, (narrow, h.embed), bias),
            (VALUE, (narrow, h.embed), bias),
            (OUT, (h.embed, wide), h.attention_bias),
        )

    def _rotate(self, graph: Graph, x: Value, h: HParams, layer: int, norm: Role) -> Value:
        if self.norms:
            weight = f"blk.{layer}.{norm.value}.weight"
            x = graph.add(RmsNorm(h.head_dim, h.norm_epsilon), x, weight=weight)
        scaling = h.rope_scaling
        stretch = scaling.factor if scaling is not None and scaling.kind == "linear" else 1.0
        rope = Rope(h.head_dim, h.rope_base, self.interleaved, stretch)
        return graph.add(rope, x, weight="rope_freqs.weight" if h.rope_freqs else None)
