"""Qwen3, dense: each head of queries and keys is normed, and rope turns halves."""

from edgequant.model.architecture import Architecture
from edgequant.model.parts.attention import RopeAttention
from edgequant.model.parts.frame import TokenFrame
from edgequant.model.parts.mlp import GatedMlp
from edgequant.model.parts.residual import pre_norm_layer

ARCHITECTURE = Architecture(
    name="qwen3",
    hf_classes=("Qwen3ForCausalLM",),
    layer=pre_norm_layer(RopeAttention(interleaved=False, norms=True), GatedMlp()),
    frame=TokenFrame(),
)
