"""Small random model files and importance matrices, for what does not run them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgequant.blocks import BLOCK_TYPES, TensorInfo
from edgequant.formats import find, quantize
from edgequant.gguf.writer import open_output
from edgequant.model.imatrix_file import write_importance
from edgequant.model.importance import Entry, ImportanceMatrix


def toy_shapes(*, layers: int = 2, embed: int = 256, kv: int = 32, ffn: int = 512,
               tied: bool = True, experts: int = 0, vocab: int = 64,
               ) -> dict[str, tuple[int, ...]]:  # fmt: skip
    """The tensors of a llama with 8 query heads, not in llama.cpp's order."""
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (vocab, embed), "output_norm.weight": (embed,),
    }  # fmt: skip
    if not tied:
        shapes["output.weight"] = (vocab, embed)
    stack, suffix = ((experts,), "_exps") if experts else ((), "")
    for i in range(layers):
        shapes |= {
            f"blk.{i}.attn_norm.weight": (embed,), f"blk.{i}.ffn_norm.weight": (embed,),
            f"blk.{i}.attn_q.weight": (embed, embed), f"blk.{i}.attn_k.weight": (kv, embed),
            f"blk.{i}.attn_v.weight": (kv, embed), f"blk.{i}.attn_output.weight": (embed, embed),
            f"blk.{i}.ffn_gate{suffix}.weight": (*stack, ffn, embed),
            f"blk.{i}.ffn_up{suffix}.weight": (*stack, ffn, embed),
            f"blk.{i}.ffn_down{suffix}.weight": (*stack, embed, ffn),
        }  # fmt: skip
        if experts:
            shapes[f"blk.{i}.ffn_gate_inp.weight"] = (experts, embed)
    return shapes


def toy_keys(*, layers: int = 2, embed: int = 256, kv: int = 32, ffn: int = 512,
             tied: bool = True, experts: int = 0, vocab: int = 64,
             ) -> dict[str, object]:  # fmt: skip
    """The keys that llama.cpp's quantizer asks for."""
    head = embed // 8
    keys: dict[str, object] = {
        "general.architecture": "llama", "general.file_type": 1, "llama.block_count": layers,
        "llama.context_length": 64, "llama.embedding_length": embed,
        "llama.feed_forward_length": ffn, "llama.vocab_size": vocab,
        "llama.attention.head_count": 8, "llama.attention.head_count_kv": kv // head,
        "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.dimension_count": head,
    }  # fmt: skip
    if experts:
        keys |= {"llama.expert_count": experts, "llama.expert_used_count": 2}
    return keys


def write_model(path: Path, arrays: Mapping[str, NDArray[Any]], keys: Mapping[str, object],
                fmt: str = "F16") -> Path:  # fmt: skip
    """Write arrays as a model file: matrices in `fmt`, vectors in F32."""
    infos = [
        TensorInfo(name, BLOCK_TYPES["F32" if array.ndim == 1 else fmt], array.shape)
        for name, array in arrays.items()
    ]
    with open_output(path, keys, infos) as output:
        for info in infos:
            rows = np.asarray(arrays[info.name], np.float32).reshape(info.rows, info.columns)
            if info.type.name == "F32":  # as it is, also what is not finite
                output.append(info.name, np.ascontiguousarray(rows).view(np.uint8))
            else:
                output.append(info.name, quantize(find(info.type.name), rows))
    return path


def toy_arrays(rng: np.random.Generator, **sizes: Any) -> dict[str, NDArray[Any]]:
    """Random weights of a toy."""
    return {
        name: rng.standard_normal(shape, np.float32) for name, shape in toy_shapes(**sizes).items()
    }


def write_toy(path: Path, rng: np.random.Generator, fmt: str = "F16", **sizes: Any) -> Path:
    """Write a random llama that llama.cpp's quantizer takes."""
    return write_model(path, toy_arrays(rng, **sizes), toy_keys(**sizes), fmt)


def toy_importance(rng: np.random.Generator, **sizes: Any) -> ImportanceMatrix:
    """Random importance for the matrices in a toy's layers, over four powers of ten."""
    entries = {}
    for name, shape in toy_shapes(**sizes).items():
        if len(shape) > 1 and name.startswith("blk.") and "inp" not in name:
            matrices = shape[0] if len(shape) == 3 else 1
            sums = (10 ** rng.uniform(-2, 2, (matrices, shape[-1]))).astype(np.float32)
            entries[name] = Entry(sums, np.full(matrices, 1024, np.float32))
    return ImportanceMatrix(entries, ("text.txt",), 2, 512)


def write_toy_importance(path: Path, rng: np.random.Generator, **sizes: Any) -> Path:
    """Write it."""
    write_importance(path, toy_importance(rng, **sizes))
    return path
