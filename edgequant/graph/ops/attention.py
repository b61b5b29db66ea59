"""Attention: causal softmax attention of the queries over the KV cache of a layer."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgequant.formats.matrix import Matrix
from edgequant.graph.graph import Shape
from edgequant.graph.kernels import attention
from edgequant.graph.launch import Call, Launch
from edgequant.graph.op import Array, Step

SCORES = 1 << 18  # held at a time where that leaves FEWEST tokens: 1 MiB of float32, as caches like
FEWEST = 16  # tokens at a time, below which the products of a long cache get slow


@dataclass(frozen=True)
class Attention:
    """`out = softmax(q k^T / sqrt(head_dim)) v`, each token seeing itself and what came before.

    Queries are (tokens, heads * head_dim). Each run of heads / heads_kv neighbouring heads shares
    one head of keys and values (Ainslie et al., "GQA", 2023). The second input is `StoreKV`'s.
    """

    layer: int
    heads: int
    heads_kv: int
    head_dim: int

    def shape(self, queries: Shape, _stored: Shape) -> Shape:
        """Return the queries' shape."""
        if queries[-1] != self.heads * self.head_dim:
            raise ValueError(
                f"attention: {queries[-1]} columns, {self.heads} heads of {self.head_dim}"
            )
        return queries

    def reference(self, inputs: Sequence[Array], _weights: Sequence[Matrix], step: Step) -> Array:
        """Go by head of the cache and by run of tokens, so that few scores are held at a time."""
        queries = inputs[0].reshape(-1, self.heads_kv, self.heads // self.heads_kv, self.head_dim)
        queries = queries * np.float32(self.head_dim**-0.5)
        tokens, _, group, _ = queries.shape
        keys, values = step.cache[self.layer]
        out = np.empty_like(queries)
        run = max(FEWEST, SCORES // (group * (step.past + tokens)))
        for start in range(0, tokens, run):
            stop = min(start + run, tokens)
            seen = step.past + stop  # what the run's last token sees
            mask = _future(stop - start)
            for head in range(self.heads_kv):
                q = queries[start:stop, head].reshape(-1, self.head_dim)  # (run * group, head_dim)
                scores = q @ keys[:seen, head].T  # (run * group, seen)
                if stop - start > 1:
                    scores.reshape(stop - start, group, seen)[:, :, step.past + start :] += mask
                scores -= scores.max(axis=-1, keepdims=True)
                np.exp(scores, out=scores)
                mixed = scores @ values[:seen, head]
                mixed /= scores.sum(axis=-1, keepdims=True)
                out[start:stop, head] = mixed.reshape(stop - start, group, self.head_dim)
        return out.reshape(tokens, -1)

    def gradient(
        self,
        inputs: Sequence[Array],
        _weights: Sequence[Matrix],
        step: Step,
        out: Array,
        _totals: Sequence[Array],
    ) -> tuple[Array, ...]:
        """Return the queries', and for the second input that of keys and values.

        With P the softmax: `P^T out` for the values; of the scores, S = P (out v^T - its mean under
        P), of which queries get `S k` and keys `S^T q`. The second is (2, tokens, heads_kv,
        head_dim); `StoreKV` knows what to do with it.
        """
        tokens, scale = len(out), np.float32(self.head_dim**-0.5)
        split = (tokens, self.heads_kv, self.heads // self.heads_kv, self.head_dim)
        queries, out = inputs[0].reshape(split) * scale, out.reshape(split)
        keys, values = (kept[:tokens] for kept in step.cache[self.layer])
        of_queries = np.empty_like(queries)
        of_stored = np.empty((2, *keys.shape), np.float32)
        mask = _future(tokens)
        for head in range(self.heads_kv):
            q, g = (x[:, head].reshape(-1, self.head_dim) for x in (queries, out))
            p = q @ keys[:, head].T  # (tokens * group, tokens)
            p.reshape(tokens, -1, tokens)[...] += mask
            p -= p.max(axis=-1, keepdims=True)
            np.exp(p, out=p)
            p /= p.sum(axis=-1, keepdims=True)
            np.matmul(p.T, g, out=of_stored[1, :, head])
            s = g @ values[:, head].T
            s -= np.einsum("ij,ij->i", s, p)[:, None]
            s *= p
            np.matmul(s.T, q, out=of_stored[0, :, head])
            of_queries[:, head] = (s @ keys[:, head]).reshape(tokens, -1, self.head_dim)
        of_queries *= scale
        return of_queries.reshape(tokens, -1), of_stored

    def launch(self, call: Call) -> tuple[Launch, ...]:
        """One launch, or two where the context is split."""
        return attention.launches(call, self.as_heads)

    @property
    def as_heads(self) -> attention.Heads:
        """Its sizes, as kernels take them."""
        group = self.heads // self.heads_kv
        return attention.Heads(self.layer, self.heads_kv, group, self.head_dim)


def _future(run: int) -> Array:
    """Return (run, 1, run): minus infinity where a token of the run comes after the row's token."""
    return np.triu(np.full((run, run), -np.inf, np.float32), 1)[:, None, :]
