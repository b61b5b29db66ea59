"""Make the tiny models in logits/ and what transformers (5.24.0, float32) says of them.

`python tests/golden/make_logits.py`. Each file holds a config.json, the parameters under their
Hugging Face names (values that float16 holds exactly), tokens, and their logits. One file a
variant of arithmetic; adding an architecture without one fails tests/unit/model.
"""

import json
from pathlib import Path

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

SIZES = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 64, "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
}  # fmt: skip
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
VARIANTS: dict[str, dict[str, object]] = {
    "llama": {"model_type": "llama"},
    "llama3": {"model_type": "llama", "rope_parameters": LLAMA3, "max_position_embeddings": 16384},
    "llama_linear": {"model_type": "llama", "rope_parameters": LINEAR},
    "llama_bias": {"model_type": "llama", "attention_bias": True, "mlp_bias": True},
    "mistral": {"model_type": "mistral", "sliding_window": 64},
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": True, "head_dim": 4},
    "qwen3": {"model_type": "qwen3"},
}


def make(name: str, variant: dict[str, object]) -> dict[str, object]:
    """Return the content of one file."""
    torch.manual_seed(sorted(VARIANTS).index(name))
    given = SIZES | variant
    config = AutoConfig.for_model(**given)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            drawn = torch.randn(parameter.shape)
            drawn = 1 + 0.3 * drawn if "norm" in key else 0.3 * drawn
            parameter.copy_(drawn.half().float())
        tokens = torch.randint(0, config.vocab_size, (1, 12))
        logits = model(tokens).logits[0].numpy()
    saved = json.loads(config.to_json_string(use_diff=False))
    saved["architectures"] = [type(model).__name__]
    parameters = {key: value.detach().half().numpy() for key, value in model.named_parameters()}
    return parameters | {
        "config.json": json.dumps(saved),
        "tokens": tokens[0].numpy().astype(np.int32),
        "logits": logits,
    }


if __name__ == "__main__":
    folder = Path(__file__).parent / "logits"
    for variant_name, variant in VARIANTS.items():
        np.savez_compressed(folder / f"{variant_name}.npz", **make(variant_name, variant))
