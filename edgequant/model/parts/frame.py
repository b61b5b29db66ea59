"""What stands around the layers: the embedding before, the last norm and the output after."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from edgequant.graph import Graph, Value
from edgequant.graph.ops.embed import Embed
from edgequant.graph.ops.linear import Linear
from edgequant.graph.ops.rms_norm import RmsNorm
from edgequant.graph.ops.rows import Rows
from edgequant.model.hparams import HParams
from edgequant.model.rope_scaling import llama3_factors
from edgequant.model.tensors import Role, TensorSpec


@dataclass(frozen=True)
class TokenFrame:
    """Token embedding, last norm, output; a tied output reads the embedding's weights."""

    def tensors(self, h: HParams) -> Iterator[TensorSpec]:
        """Yield the tensors outside the layers."""
        yield TensorSpec(
            "token_embd.weight", "model.embed_tokens.weight", (h.vocab, h.embed), Role.EMBED
        )
        yield TensorSpec("output_norm.weight", "model.norm.weight", (h.embed,), Role.OUTPUT_NORM)
        if not h.tied:
            yield TensorSpec("output.weight", "lm_head.weight", (h.vocab, h.embed), Role.OUTPUT)
        if h.rope_freqs:
            yield _rope_freqs(h)

    def enter(self, graph: Graph, h: HParams) -> Value:
        """Append the embedding."""
        return graph.add(Embed(h.embed), weight="token_embd.weight")

    def leave(self, graph: Graph, x: Value, h: HParams) -> Value:
        """Append the choice of rows, the last norm and the output; returns the logits."""
        x = graph.add(Rows(), x)
        x = graph.add(RmsNorm(h.embed, h.norm_epsilon), x, weight="output_norm.weight")
        weight = "token_embd.weight" if h.tied else "output.weight"
        return graph.add(Linear(h.embed, h.vocab), x, weight=weight)


def _rope_freqs(h: HParams) -> TensorSpec:
    """Return the factors of llama3 scaling; known from a config, only read from a model file."""
    scaling = h.rope_scaling
    compute = None if scaling is None else partial(llama3_factors, scaling, h.rope_base, h.head_dim)
    return TensorSpec(
        "rope_freqs.weight", None, (h.head_dim // 2,), Role.ROPE_FREQS, compute=compute
    )
