"""A Llama checkpoint of a few kilobytes with a real tokenizer, made to be spoiled by a test."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from bench.make_checkpoint import Shape, config_of, write_tokenizer
from shards import BF16, write_shard

TINY = Shape(layers=2, embed=32, heads=4, heads_kv=2, ffn=64, vocab=260)
EMBED, OUTPUT = "model.embed_tokens.weight", "lm_head.weight"
UP = "model.layers.1.mlp.up_proj.weight"


def make_tensors(rng: np.random.Generator, dtype: np.dtype = BF16) -> dict[str, np.ndarray]:
    """Draw the weights of TINY, by Hugging Face name."""
    return {
        name: (0.1 * rng.standard_normal(shape)).astype(dtype) for name, shape in TINY.tensors()
    }


def write_tiny(directory: Path, tensors: Mapping[str, np.ndarray], **config: object) -> Path:
    """Write a checkpoint; `config` changes config.json, None removes a key."""
    directory.mkdir()
    changed = {**config_of(TINY), **config}
    kept = {key: value for key, value in changed.items() if value is not None}
    (directory / "config.json").write_text(json.dumps(kept))
    write_tokenizer(directory, TINY.vocab)
    write_shard(directory / "model.safetensors", tensors)
    return directory
