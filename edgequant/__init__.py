"""edgequant: a Hugging Face checkpoint, in 4 bits, on the machine you have.

The commands are also functions: typed arguments in, a frozen report out, errors of
`edgequant.errors`. They load when they are asked for:

    edgequant.convert("Qwen/Qwen3-0.6B", Path("f16.gguf"))
    edgequant.quantize(Path("f16.gguf"), Path("q4.gguf"), type="Q4_K_M")

The map, by the language each folder speaks (imports point downward only; a contract says so):

    cli         words: commands, options, tables; the only folder that prints
    stages      files: convert, imatrix, quantize, tune, generate, perplexity, compare, bench,
                inspect, bundle
    runtime     token ids: a model on a device, sampling, chat templates
    model       tensors and roles: what an architecture is, without weights or devices
    device      buffers: cpu (NumPy, the meaning), llama (llama.cpp), and GPUs through vulkan
    graph       ops and values: a forward pass as data
    formats     blocks: Q4_K and its kin, encode and decode
    gguf        bytes: the file format, and nothing about models
    source      Hugging Face names: checkpoints, shards, the Hub
    tokenizer   text: from GGUF keys to ids and back
    blocks      the values that the layers hand to each other
    progress    how far a stage is
    errors      whose thing is wrong, and what to do
    shipped     where the texts and shaders lie that come with the package
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_VERBS = {
    "convert": ("convert", "convert"),
    "imatrix": ("imatrix", "collect"),
    "quantize": ("quantize", "quantize"),
    "tune": ("tune", "tune"),
    "run": ("generate", "generate"),
    "perplexity": ("perplexity", "measure_perplexity"),
    "compare": ("compare", "compare"),
    "bench": ("bench", "measure_speed"),
    "inspect": ("inspect", "inspect"),
    "bundle": ("bundle", "bundle"),
}  # command: stage and function


def __getattr__(name: str) -> Any:
    """Return the function behind a command; importing edgequant alone loads none of them."""
    if name not in _VERBS:
        raise AttributeError(f"module 'edgequant' has no attribute {name!r}")
    stage, function = _VERBS[name]
    return getattr(importlib.import_module(f"edgequant.stages.{stage}"), function)
