"""Qwen2 and Qwen2.5: queries, keys and values have a bias, and rope turns halves."""

from edgequant.model.architecture import Architecture
from edgequant.model.parts.attention import RopeAttention
from edgequant.model.parts.frame import TokenFrame
from edgequant.model.parts.mlp import GatedMlp
from edgequant.model.parts.residual import pre_norm_layer

ARCHITECTURE = Architecture(
    name="qwen2",
    hf_classes=("Qwen2ForCausalLM",),
    layer=pre_norm_layer(RopeAttention(interleaved=False, bias=True), GatedMlp()),
    frame=TokenFrame(),
)
