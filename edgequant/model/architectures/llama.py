"""Llama 1 to 3, and Mistral, which differs only in its sliding window (see `HParams.window`)."""

from edgequant.model.architecture import Architecture
from edgequant.model.parts.attention import RopeAttention
from edgequant.model.parts.frame import TokenFrame
from edgequant.model.parts.mlp import GatedMlp
from edgequant.model.parts.residual import pre_norm_layer

ARCHITECTURE = Architecture(
    name="llama",
    hf_classes=("LlamaForCausalLM", "MistralForCausalLM"),
    layer=pre_norm_layer(RopeAttention(interleaved=True), GatedMlp()),
    frame=TokenFrame(),
)
