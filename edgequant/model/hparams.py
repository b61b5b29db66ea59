"""A model's sizes and constants, from config.json, and to and from GGUF keys.

What a config says and we do not understand is refused by name, not dropped.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class RopeScaling:
    """How positions are stretched: "linear" (by `factor`) or "llama3" (per frequency).

    `low`, `high` and `original_context` belong to llama3, as in Llama 3.1's config.json.
    """

    kind: str
    factor: float
    low: float = 1.0
    high: float = 4.0
    original_context: int = 8192


@dataclass(frozen=True)
class HParams:
    """The sizes of one model.

    Attributes:
        layers: transformer layers.
        embed: width of the residual stream.
        heads: query heads.
        heads_kv: key and value heads; divides `heads`.
        head_dim: width of one head.
        ffn: width of the feed-forward hidden layer.
        vocab: rows of the embedding, at least as many as the tokenizer has tokens.
        context: positions it was trained for.
        norm_epsilon: of its RMS norms.
        rope_base: theta.
        rope_scaling: None for plain rope.
        rope_freqs: the file has a rope_freqs.weight (how llama3 scaling is kept on disk).
        window: sliding attention window in tokens; None for full attention.
        tied: the output reads the embedding's weights.
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
