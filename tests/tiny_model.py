"""A model file of random weights and 260 tokens, made in milliseconds: bytes, words, BOS, EOS."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from edgequant.blocks import BLOCK_TYPES, TensorInfo
from edgequant.formats import find, quantize
from edgequant.gguf.writer import open_output
from edgequant.model.hparams import HParams
from edgequant.model.registry import by_name
from edgequant.tokenizer.bpe import LETTERS

TOKENS = (*LETTERS, "he", "lo", "<bos>", "<eos>")
BOS, EOS = 258, 259
CONTEXT = 64
SIZES = HParams(
    layers=2, embed=64, heads=4, heads_kv=2, head_dim=16, ffn=96, vocab=len(TOKENS),
    context=CONTEXT, norm_epsilon=1e-5, rope_base=10000.0,
)  # fmt: skip
TEMPLATE = "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"


def write_model(
    path: Path,
    *,
    seed: int = 7,
    fmt: str = "F16",
    sizes: HParams = SIZES,
    tokens: Sequence[str] = TOKENS,
    keys: Mapping[str, Any] | None = None,
    damage: str | None = None,
) -> Path:
    """Write the model of a seed, its matrices in a format.

    `tokens` are the vocabulary, BOS and EOS at their places; `keys` replaces or adds some, None
    drops one; `damage` names a tensor whose first weight is not a number.
    """
    architecture, rng = by_name("llama"), np.random.default_rng(seed)
    sizes = replace(sizes, vocab=len(tokens))
    tensors = []
    for spec in architecture.tensors(sizes):
        matrix = len(spec.shape) == 2
        weights = rng.standard_normal(spec.shape) * (0.15 if matrix else 0.02) + (not matrix)
        weights = weights.astype(np.float32)
        if spec.name == damage:
            weights.flat[0] = np.nan
        kind = fmt if matrix else "F32"
        info = TensorInfo(spec.name, BLOCK_TYPES[kind], spec.shape)
        rows = weights.reshape(info.rows, info.columns)
        tensors.append((info, quantize(find(kind), rows)))
    entries = sizes.to_keys("llama") | {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "llama-bpe",
        "tokenizer.ggml.tokens": list(tokens),
        "tokenizer.ggml.token_type": [1] * BOS + [3, 3] + [5] * (len(tokens) - EOS - 1),
        "tokenizer.ggml.merges": ["h e", "l o"],
        "tokenizer.ggml.bos_token_id": BOS,
        "tokenizer.ggml.eos_token_id": EOS,
        "tokenizer.ggml.add_bos_token": True,
    }
    entries |= keys or {}
    kept = {key: value for key, value in entries.items() if value is not None}
    with open_output(path, kept, [info for info, _ in tensors], force=True) as output:
        for info, content in tensors:
            output.append(info.name, content)
    return path
