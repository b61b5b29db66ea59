"""Sizes from config.json and from GGUF keys; everything odd is refused by name, with numbers."""

import json
import math
from typing import Any

import numpy as np
import pytest
from assemble import GOLDEN

from edgequant.errors import CheckpointError, GGUFError, UnsupportedError
from edgequant.model.hparams import HParams
from edgequant.model.rope_scaling import RopeScaling, llama3_factors

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
    "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5, "hidden_act": "silu", "torch_dtype": "bfloat16",
}  # fmt: skip
LLAMA3 = {
    "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
KEYS: dict[str, object] = {
    "general.architecture": "llama", "llama.block_count": 2, "llama.context_length": 256,
    "llama.embedding_length": 64, "llama.feed_forward_length": 96, "llama.attention.head_count": 4,
    "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.vocab_size": 100,
}  # fmt: skip


def of(**changes: object) -> HParams:
    return HParams.from_config(CONFIG | changes, "config.json")


def keyed(**changes: object) -> HParams:
    more = {key.replace("__", "."): value for key, value in changes.items()}
    return HParams.from_keys(KEYS | more, "m.gguf")


def test_a_config_is_read() -> None:
    assert of() == HParams(2, 64, 4, 2, 16, 96, 100, 256, 1e-5, 10000.0)


def test_what_a_config_may_leave_out() -> None:
    short = {key: value for key, value in CONFIG.items() if key != "num_key_value_heads"}
    assert HParams.from_config(short, "config.json").heads_kv == 4
    assert of(head_dim=None).head_dim == 16
    assert of(head_dim=32).head_dim == 32
    assert of(rope_scaling=None, sliding_window=None, quantization_config=None) == of()


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_keys_give_back_what_a_config_said(path: Any) -> None:
    config = json.loads(str(np.load(path)["config.json"]))
    h = HParams.from_config(config, "config.json")
    names = ["output.weight"] * (not h.tied) + ["rope_freqs.weight"] * h.rope_freqs
    names += ["blk.0.attn_output.bias"] * h.attention_bias + ["blk.0.ffn_down.bias"] * h.mlp_bias
    back = HParams.from_keys(h.to_keys("llama"), "m.gguf").fitted(names)
    scaling = h.rope_scaling if h.rope_scaling and h.rope_scaling.kind == "linear" else None
    assert back == HParams(**(vars(h) | {"rope_scaling": scaling}))


@pytest.mark.parametrize(
    "config",
    [
        {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", **LLAMA3}},
        {"rope_theta": 5e5, "rope_scaling": {"type": "llama3", **LLAMA3}},
        {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3}},
    ],
)
def test_llama3_scaling_in_every_spelling(config: dict[str, object]) -> None:
    h = of(**config)
    assert (h.rope_base, h.rope_freqs) == (5e5, True)
    assert h.rope_scaling == RopeScaling("llama3", 8.0, 1.0, 4.0, 8192)


def test_linear_scaling_in_both_spellings() -> None:
    old = of(rope_scaling={"type": "linear", "factor": 2.0})
    new = of(rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0})
    assert old == new
    assert old.rope_scaling == RopeScaling("linear", 2.0)
    assert of(rope_scaling={"type": "default"}).rope_scaling is None


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama3_factors_are_the_formula(factor: float) -> None:
    factors = llama3_factors(RopeScaling("llama3", factor), 5e5, 128)
    for pair, found in enumerate(factors):
        frequency = 5e5 ** (-2 * pair / 128)
        turns = 8192 * frequency / (2 * math.pi)  # within the original context
        blend = min(1.0, max(0.0, (turns - 1) / (4 - 1)))
        wanted = 1 / ((1 - blend) / factor + blend)
        assert found == pytest.approx(wanted, rel=3e-6), pair
    assert factors.dtype == np.float32
    assert (factors[0], factors[-1]) == (1, factor)


def test_windows() -> None:
    mistral = {"architectures": ["MistralForCausalLM"]}
    assert of(**mistral).window == 4096  # what MistralConfig takes when nothing is said
    assert of(**mistral, sliding_window=None).window is None
    assert of(**mistral, sliding_window=64).window == 64
    assert of(use_sliding_window=False, sliding_window=64).window is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"hidden_size": 0}, r"hidden_size is 0; 1 to 1,048,576 are possible"),
        ({"hidden_size": -64}, "hidden_size is -64"),
        ({"hidden_size": 10**70}, r"hidden_size is 10,000,.*\.\.\.; 1 to"),
        ({"hidden_size": 64.0}, "hidden_size is 64.0; a whole number was expected"),
        ({"hidden_size": True}, "hidden_size is True; a whole number"),
        ({"hidden_size": 66}, "hidden_size is 66, which 4 attention heads do not divide"),
        ({"hidden_size": 60}, "head_dim is 15; rope needs an even width"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0; 1 to"),
        ({"num_key_value_heads": 3}, "4 attention heads do not share 3 key-value heads evenly"),
        ({"num_hidden_layers": 5000}, r"num_hidden_layers is 5,000; 1 to 4,096"),
        ({"rms_norm_eps": "1e-5"}, "rms_norm_eps is '1e-5'; a number was expected"),
        ({"rms_norm_eps": math.nan}, "rms_norm_eps is nan; 1e-12 to 1 are possible"),
        ({"rms_norm_eps": None}, "rms_norm_eps is missing"),
        ({"rope_theta": 0}, r"rope_theta is 0; 1 to 1e\+12 are possible"),
        ({"rope_theta": 10**400}, "rope_theta is 1000"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings is 1; true or false was expected"),
        ({"hidden_act": 7}, "hidden_act is 7; a text was expected"),
        ({"rope_scaling": "linear"}, "rope_scaling is 'linear'; an object was expected"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling: factor is missing"),
        ({"rope_scaling": {"type": "linear", "factor": 0.5}}, "factor is 0.5; 1 to"),
        (
            {"rope_scaling": {"type": "llama3", **LLAMA3, "low_freq_factor": 4.0}},
            "low_freq_factor is 4, not below high_freq_factor 4",
        ),
        (
            {"rope_scaling": {"type": "linear", "factor": 2.0},
             "rope_parameters": {"rope_type": "linear", "factor": 4.0}},
            "rope_parameters and rope_scaling are both there, and differ",
        ),
    ],
)  # fmt: skip
def test_a_senseless_config_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(CheckpointError, match=f"config.json: .*{message}"):
        of(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; only 'silu' is supported"),
        ({"use_sliding_window": True}, "use_sliding_window is true; only full attention is"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types holds more than"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5; only 1 is supported"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "the rope type 'yarn' is not"),
        ({"rope_scaling": {"rope_type": "dynamic"}}, "the rope type 'dynamic' is not"),
        ({"rope_scaling": {"type": "longrope"}}, "the rope type 'longrope' is not"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0, "beta": 3}}, "rope_scaling: beta is 3"),
        ({"logits_scaling": 8.0}, "logits_scaling is 8.0, which edgequant does not understand"),
        ({"num_local_experts": 8}, "num_local_experts is 8, which edgequant does not"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantization_config is {'quant"),
    ],
)
def test_other_arithmetic_is_refused_by_name(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UnsupportedError, match=f"config.json: .*{message}"):
        of(**changes)


def test_keys_have_llama_cpps_defaults() -> None:
    h = keyed()
    assert (h.heads_kv, h.head_dim, h.rope_base, h.rope_scaling) == (4, 16, 10000.0, None)


def test_keys_of_other_makers() -> None:
    assert keyed(llama__attention__head_count_kv=[2, 2]).heads_kv == 2
    assert keyed(llama__rope__scaling__factor=2.0).rope_scaling == RopeScaling("linear", 2.0)
    assert keyed(llama__rope__scale_linear=4.0).rope_scaling == RopeScaling("linear", 4.0)
    none = keyed(llama__rope__scaling__type="none", llama__rope__scaling__factor=2.0)
    assert none.rope_scaling is None
    assert keyed(tokenizer__ggml__tokens=["a"] * 90).vocab == 90
    assert keyed(llama__expert_count=0, llama__attention__causal=True) == keyed()
    assert keyed(tokenizer__ggml__model="gpt2", qwen2__odd=3) == keyed()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"llama__block_count": None}, GGUFError, "llama.block_count is missing"),
        ({"llama__block_count": 2**32 - 1}, GGUFError, r"block_count is 4,294,967,295; 1 to 4,096"),
        ({"llama__attention__head_count": 0}, GGUFError, "head_count is 0; 1 to 16,384"),
        ({"llama__attention__head_count": 3}, GGUFError, "embedding_length is 64, which 3 att"),
        (
            {"llama__attention__head_count_kv": [2, 4]},
            GGUFError,
            r"head_count_kv is \[2, 4\]; a wh",
        ),
        (
            {"llama__attention__layer_norm_rms_epsilon": math.inf},
            GGUFError,
            "epsilon is inf; 1e-12 to",
        ),
        ({"llama__rope__freq_base": math.nan}, GGUFError, "freq_base is nan"),
        ({"llama__vocab_size": None}, GGUFError, "llama.vocab_size is missing"),
        ({"llama__vocab_size": 2**40}, GGUFError, "vocab_size is 1,099,511,627,776; 1 to"),
        ({"general__architecture": 3}, GGUFError, "general.architecture is 3; a text was"),
        ({"llama__attention__value_length": 8}, UnsupportedError, "value_length is 8, but the hea"),
        ({"llama__rope__dimension_count": 8}, UnsupportedError, "dimension_count is 8, but the"),
        ({"llama__attention__causal": False}, UnsupportedError, "causal is false; only causal"),
        ({"llama__rope__scaling__type": "yarn"}, UnsupportedError, "scaling 'yarn' is not supp"),
        ({"llama__expert_count": 8}, UnsupportedError, "llama.expert_count is 8, which edgequant"),
        ({"llama__logit_scale": 0.5}, UnsupportedError, "llama.logit_scale is 0.5, which edgeq"),
    ],
)
def test_keys_are_refused(changes: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"m.gguf: .*{message}"):
        keyed(**changes)


# What published checkpoints say: every key of their config.json that is more than a token id.
SAVED: dict[str, object] = {
    "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
    "initializer_range": 0.02, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "transformers_version": "4.43.0", "use_cache": True,
}  # fmt: skip
PUBLISHED: dict[str, tuple[dict[str, object], HParams]] = {
    "Llama 3.1 8B": (
        {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": False,
         "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 131072,
         "mlp_bias": False, "num_attention_heads": 32, "num_hidden_layers": 32,
         "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-5,
         "rope_scaling": {**LLAMA3, "rope_type": "llama3"}, "rope_theta": 500000.0,
         "vocab_size": 128256, "eos_token_id": [128001, 128008, 128009]},
        HParams(32, 4096, 32, 8, 128, 14336, 128256, 131072, 1e-5, 5e5,
                RopeScaling("llama3", 8.0), rope_freqs=True),
    ),
    "Mistral 7B v0.1": (
        {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_size": 4096,
         "intermediate_size": 14336, "max_position_embeddings": 32768, "num_attention_heads": 32,
         "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-5,
         "rope_theta": 10000.0, "sliding_window": 4096, "vocab_size": 32000},
        HParams(32, 4096, 32, 8, 128, 14336, 32000, 32768, 1e-5, 1e4, window=4096),
    ),
    "Qwen2.5 7B": (
        {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 3584,
         "intermediate_size": 18944, "max_position_embeddings": 131072, "max_window_layers": 28,
         "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
         "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "sliding_window": 131072,
         "use_mrope": False, "use_sliding_window": False, "vocab_size": 152064},
        HParams(28, 3584, 28, 4, 128, 18944, 152064, 131072, 1e-6, 1e6),
    ),
    "Qwen3 0.6B": (
        {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias": False,
         "head_dim": 128, "hidden_size": 1024, "intermediate_size": 3072,
         "max_position_embeddings": 40960, "max_window_layers": 28, "num_attention_heads": 16,
         "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps": 1e-6,
         "rope_scaling": None, "rope_theta": 1000000, "sliding_window": None,
         "tie_word_embeddings": True, "use_sliding_window": False, "vocab_size": 151936},
        HParams(28, 1024, 16, 8, 128, 3072, 151936, 40960, 1e-6, 1e6, tied=True),
    ),
    "SmolLM2 135M": (
        {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": False,
         "hidden_size": 576, "intermediate_size": 1536, "is_llama_config": True,
         "max_position_embeddings": 8192, "mlp_bias": False, "num_attention_heads": 9,
         "num_hidden_layers": 30, "num_key_value_heads": 3, "pad_token_id": 2, "pretraining_tp": 1,
         "rms_norm_eps": 1e-5, "rope_interleaved": False, "rope_scaling": None,
         "rope_theta": 100000, "tie_word_embeddings": True,
         "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}}, "vocab_size": 49152},
        HParams(30, 576, 9, 3, 64, 1536, 49152, 8192, 1e-5, 1e5, tied=True),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configs_are_read(name: str) -> None:
    config, wanted = PUBLISHED[name]
    assert HParams.from_config(SAVED | config, "config.json") == wanted
