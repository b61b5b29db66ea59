"""A model's sizes and constants, from config.json, and to and from GGUF keys.

What a config or a file says and we do not understand is refused by name, not dropped. It knows no
tensor shapes; that they fit is checked by `Architecture.check`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from edgequant.errors import CheckpointError, GGUFError, UnsupportedError
from edgequant.model.fields import Fields
from edgequant.model.known import INERT_CONFIG, INERT_KEYS
from edgequant.model.rope_scaling import RopeScaling, rope_of_config, scaling_of_keys

# Far above any model there is, low enough that no product of two overflows anything.
MOST_LAYERS, MOST_HEADS, MOST_WIDTH, MOST_HEAD_DIM = 4096, 1 << 14, 1 << 20, 1 << 13
MOST_VOCAB, MOST_CONTEXT = 1 << 24, 1 << 30


@dataclass(frozen=True)
class HParams:
    """The sizes of one model.

    Attributes:
        layers: transformer layers.
        embed: width of the residual stream.
        heads: query heads.
        heads_kv: key and value heads; divides `heads`.
        head_dim: width of one head, even.
        ffn: width of the feed-forward hidden layer.
        vocab: rows of the embedding, at least as many as the tokenizer has tokens.
        context: positions it was trained for.
        norm_epsilon: of its RMS norms.
        rope_base: theta.
        rope_scaling: None for plain rope.
        rope_freqs: the file has a rope_freqs.weight (how llama3 scaling is kept on disk).
        window: sliding attention window in tokens; None for full attention. Attention is always
            full here, so whoever opens a model refuses a context beyond its window.
        tied: the output reads the embedding's weights.
        attention_bias: all four linear layers of attention have a bias.
        mlp_bias: all three linear layers of the feed-forward layer have a bias.
    """

    layers: int
    embed: int
    heads: int
    heads_kv: int
    head_dim: int
    ffn: int
    vocab: int
    context: int
    norm_epsilon: float
    rope_base: float
    rope_scaling: RopeScaling | None = None
    rope_freqs: bool = False
    window: int | None = None
    tied: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False

    @classmethod
    def from_config(cls, config: Mapping[str, object], where: str) -> "HParams":
        """Read a config.json of transformers 4 or 5.

        Args:
            config: its content.
            where: its name, for errors.

        Raises:
            CheckpointError: a value that is missing, of the wrong type or out of range.
            UnsupportedError: a value, or a key, that changes the arithmetic in a way we do not do.
        """
        fields = Fields(config, where, CheckpointError, "fetch the checkpoint's config.json again.")
        _refuse_variants(fields)
        embed = fields.integer("hidden_size", 1, MOST_WIDTH)
        heads = fields.integer("num_attention_heads", 1, MOST_HEADS)
        heads_kv = fields.integer("num_key_value_heads", 1, MOST_HEADS, heads)
        head_dim = _head_dim(fields, "head_dim", "hidden_size", embed, heads, heads_kv)
        context = fields.integer("max_position_embeddings", 1, MOST_CONTEXT)
        base, scaling = rope_of_config(fields, context)
        h = cls(
            layers=fields.integer("num_hidden_layers", 1, MOST_LAYERS),
            embed=embed,
            heads=heads,
            heads_kv=heads_kv,
            head_dim=head_dim,
            ffn=fields.integer("intermediate_size", 1, MOST_WIDTH),
            vocab=fields.integer("vocab_size", 1, MOST_VOCAB),
            context=context,
            norm_epsilon=fields.number("rms_norm_eps", 1e-12, 1),
            rope_base=base,
            rope_scaling=scaling,
            rope_freqs=scaling is not None and scaling.kind == "llama3",
            window=_window_of_config(fields),
            tied=fields.flag("tie_word_embeddings"),
            attention_bias=fields.flag("attention_bias"),
            mlp_bias=fields.flag("mlp_bias"),
        )
        fields.refuse_unknown(INERT_CONFIG)
        return h

    @classmethod
    def from_keys(cls, keys: Mapping[str, object], where: str) -> "HParams":
        """Read the keys of a GGUF file; what only its tensors say is added by `fitted`.

        Keys that llama.cpp lets a file leave out have llama.cpp's defaults (llama-model.cpp at
        0c1e57098). Llama 3's scaling is not in the keys, so it comes back as `rope_freqs` alone.

        Args:
            keys: plain values by key.
            where: the file's name, for errors.

        Raises:
            GGUFError: a value that is missing, of the wrong type or out of range.
            UnsupportedError: a key that changes the arithmetic in a way we do not do.
        """
        hint = "the file is damaged or was made by another version; convert the checkpoint again."
        fields = Fields(keys, where, GGUFError, hint)
        name = fields.text("general.architecture")
        embed = fields.integer(f"{name}.embedding_length", 1, MOST_WIDTH)
        heads = fields.integer(f"{name}.attention.head_count", 1, MOST_HEADS)
        heads_kv = fields.integer(f"{name}.attention.head_count_kv", 1, MOST_HEADS, heads)
        key = f"{name}.attention.key_length"
        head_dim = _head_dim(fields, key, f"{name}.embedding_length", embed, heads, heads_kv)
        for key in (f"{name}.attention.value_length", f"{name}.rope.dimension_count"):
            other = fields.integer(key, 1, MOST_HEAD_DIM, head_dim)
            if other != head_dim:
                raise UnsupportedError(
                    f"{where}: {key} is {other}, but the heads are {head_dim} wide.",
                    hint="use a model whose heads are rotated whole and all of one width.",
                )
        if not fields.flag(f"{name}.attention.causal", default=True):
            raise UnsupportedError(
                f"{where}: {name}.attention.causal is false; only causal models are supported.",
                hint="use a model that generates text.",
            )
        tokens = keys.get("tokenizer.ggml.tokens")
        vocab = fields.integer(
            f"{name}.vocab_size", 1, MOST_VOCAB, len(tokens) if isinstance(tokens, list) else None
        )
        h = cls(
            layers=fields.integer(f"{name}.block_count", 1, MOST_LAYERS),
            embed=embed,
            heads=heads,
            heads_kv=heads_kv,
            head_dim=head_dim,
            ffn=fields.integer(f"{name}.feed_forward_length", 1, MOST_WIDTH),
            vocab=len(tokens) if isinstance(tokens, list) else vocab,
            context=fields.integer(f"{name}.context_length", 1, MOST_CONTEXT),
            norm_epsilon=fields.number(f"{name}.attention.layer_norm_rms_epsilon", 1e-12, 1),
            rope_base=fields.number(f"{name}.rope.freq_base", 1, 1e12, 10000.0),
            rope_scaling=scaling_of_keys(fields, name),
            window=fields.integer(f"{name}.attention.sliding_window", 0, MOST_CONTEXT, 0) or None,
        )
        fields.refuse_unknown(INERT_KEYS, f"{name}.")
        return h

    def fitted(self, tensors: Collection[str]) -> "HParams":
        """Return the same with what a GGUF file says only by the names of its tensors."""
        return replace(
            self,
            tied="output.weight" not in tensors,
            rope_freqs="rope_freqs.weight" in tensors,
            attention_bias="blk.0.attn_output.bias" in tensors,
            mlp_bias="blk.0.ffn_down.bias" in tensors,
        )

    def to_keys(self, name: str) -> dict[str, object]:
        """Return the GGUF keys of an architecture of this name, as llama.cpp reads them.

        Llama 3's scaling is not a key but the tensor rope_freqs.weight.
        """
        keys: dict[str, object] = {
            "general.architecture": name,
            f"{name}.block_count": self.layers,
            f"{name}.context_length": self.context,
            f"{name}.embedding_length": self.embed,
            f"{name}.feed_forward_length": self.ffn,
            f"{name}.attention.head_count": self.heads,
            f"{name}.attention.head_count_kv": self.heads_kv,
            f"{name}.attention.key_length": self.head_dim,
            f"{name}.attention.value_length": self.head_dim,
            f"{name}.attention.layer_norm_rms_epsilon": self.norm_epsilon,
            f"{name}.rope.dimension_count": self.head_dim,
            f"{name}.rope.freq_base": self.rope_base,
            f"{name}.vocab_size": self.vocab,
        }
        if self.rope_scaling is not None and self.rope_scaling.kind == "linear":
            keys[f"{name}.rope.scaling.type"] = "linear"
            keys[f"{name}.rope.scaling.factor"] = self.rope_scaling.factor
        if self.window is not None:
            keys[f"{name}.attention.sliding_window"] = self.window
        return keys


def _head_dim(
    fields: Fields, key: str, width_key: str, embed: int, heads: int, heads_kv: int
) -> int:
    if heads % heads_kv:
        fields.refuse(f"{heads} attention heads do not share {heads_kv} key-value heads evenly.")
    share, rest = divmod(embed, heads)
    if fields.value(key) is None and rest:
        fields.refuse(f"{width_key} is {embed}, which {heads} attention heads do not divide.")
    head_dim = fields.integer(key, 2, MOST_HEAD_DIM, share)
    if head_dim % 2:
        fields.refuse(f"{key} is {head_dim}; rope needs an even width.")
    return head_dim


def _refuse_variants(fields: Fields) -> None:
    """Refuse the values of known keys that ask for other arithmetic."""
    activation = fields.text("hidden_act", "silu")
    layer_types = fields.value("layer_types") or []
    windowed = fields.flag("use_sliding_window")
    partial = fields.number("partial_rotary_factor", 0, 1, 1.0)
    others = layer_types if isinstance(layer_types, list) else [layer_types]
    for odd, what in (
        (activation not in ("silu", "swish"), f"hidden_act is {activation!r}; only 'silu' is"),
        (windowed, "use_sliding_window is true; only full attention is"),
        (
            any(kind != "full_attention" for kind in others),
            "layer_types holds more than 'full_attention', which alone is",
        ),
        (partial != 1, f"partial_rotary_factor is {partial:g}; only 1 is"),
    ):
        if odd:
            raise UnsupportedError(
                f"{fields.where}: {what} supported.", hint="use a model without it."
            )


def _window_of_config(fields: Fields) -> int | None:
    if fields.value("use_sliding_window") is False:  # qwen2 names a window that it does not use
        fields.value("sliding_window")
        return None
    # MistralConfig's own default, for a config that leaves the key out.
    classes = fields.value("architectures")
    named = isinstance(classes, list) and "MistralForCausalLM" in classes
    if fields.has("sliding_window") and fields.value("sliding_window") is None:
        return None
    return fields.integer("sliding_window", 0, MOST_CONTEXT, 4096 if named else 0) or None
