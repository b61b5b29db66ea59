"""A residual branch: the stream plus what a part makes of the normed stream."""

from collections.abc import Iterator
from dataclasses import dataclass

from edgequant.graph import Graph, Value
from edgequant.graph.ops.add import Add
from edgequant.graph.ops.rms_norm import RmsNorm
from edgequant.model.architecture import Part
from edgequant.model.hparams import HParams
from edgequant.model.tensors import Role, TensorSpec


@dataclass(frozen=True)
class Residual:
    """`x + branch(norm(x))`; `norm` names the norm on disk, `source` in a checkpoint's layer."""

    norm: Role
    source: str
    branch: Part

    def tensors(self, h: HParams, layer: int) -> Iterator[TensorSpec]:
        """Yield the norm and the branch's tensors."""
        yield TensorSpec(
            f"blk.{layer}.{self.norm.value}.weight",
            f"model.layers.{layer}.{self.source}.weight",
            (h.embed,),
            self.norm,
            layer,
        )
        yield from self.branch.tensors(h, layer)

    def emit(self, graph: Graph, x: Value, h: HParams, layer: int) -> Value:
        """Append norm, branch and sum."""
        weight = f"blk.{layer}.{self.norm.value}.weight"
        normed = graph.add(RmsNorm(h.embed, h.norm_epsilon), x, weight=weight)
        return graph.add(Add(), x, self.branch.emit(graph, normed, h, layer))


def pre_norm_layer(attention: Part, mlp: Part) -> tuple[Part, Part]:
    """Return the layer of llama and its kin: attention, then feed-forward, each behind its norm."""
    return (
        Residual(Role.ATTN_NORM, "input_layernorm", attention),
        Residual(Role.FFN_NORM, "post_attention_layernorm", mlp),
    )
