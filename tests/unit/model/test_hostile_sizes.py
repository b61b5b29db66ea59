"""Whatever a config.json or the keys of a GGUF file say, it is read or refused as the user's."""

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from edgequant.errors import EdgequantError
from edgequant.model.hparams import HParams

PLAIN: dict[str, object] = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5, "head_dim": 16, "rope_scaling": {"type": "linear", "factor": 2.0},
    "sliding_window": 64,
}  # fmt: skip
KEYS = HParams.from_config(PLAIN, "config.json").to_keys("llama")
MORE = ("rope_parameters", "layer_types", "use_sliding_window", "tie_word_embeddings", "mlp_bias",
        "attention_bias", "partial_rotary_factor", "architectures", "hidden_act")  # fmt: skip

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9)
    | st.sampled_from([2**31, 2**64, -1, 10**400, "llama3", "linear", "full_attention"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["rope_type", "type", "factor", "rope_theta"]), inner),
    max_leaves=5,
)  # fmt: skip


@given(changes=st.dictionaries(st.sampled_from((*PLAIN, *MORE)), VALUES, max_size=4))
def test_any_config(changes: dict[str, object]) -> None:
    with suppress(EdgequantError):
        h = HParams.from_config(PLAIN | changes, "config.json")
        assert h.heads % h.heads_kv == h.head_dim % 2 == 0


@given(
    changes=st.dictionaries(
        st.sampled_from((*KEYS, "tokenizer.ggml.tokens", "llama.attention.causal")),
        VALUES,
        max_size=4,
    )
)
def test_any_keys(changes: dict[str, object]) -> None:
    with suppress(EdgequantError):
        h = HParams.from_keys(KEYS | changes, "m.gguf")
        assert h.heads % h.heads_kv == h.head_dim % 2 == 0
