"""Recipes choose llama.cpp's types: its answers on two models, and its quantizer on toys."""

import ctypes
import json
from pathlib import Path

import numpy as np
import pytest

from edgequant.blocks import BLOCK_TYPES, TensorInfo
from edgequant.gguf.reader import open_file
from edgequant.gguf.writer import open_output
from edgequant.model.assignment import assign, read_sizes
from edgequant.model.recipes import RECIPES, Sizes

MODELS = {"books-54m": Sizes("llama", 12, 8, 4), "books-6m": Sizes("llama", 6, 4, 2)}


@pytest.mark.shared
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("recipe", RECIPES)
def test_types_are_llama_cpps_on_the_books_models(shared: Path, model: str, recipe: str) -> None:
    answers = json.loads((shared / "oracle" / "types.json").read_text())[model]
    if recipe not in answers:  # F16 and BF16 were not asked
        return
    config = json.loads((shared / "models" / model / "config.json").read_text())
    assert config["num_hidden_layers"] == MODELS[model].layers
    infos = [
        TensorInfo(name, BLOCK_TYPES["F32"], (256,) if "norm" in name else (256, 256))
        for name in answers[recipe]
    ]
    plan = assign(RECIPES[recipe], infos[::-1], MODELS[model], imatrix=True)
    ours = {a.source.name: a.type.name for a in plan}
    assert ours == answers[recipe]


def write_toy(path: Path, rng: np.random.Generator, *, layers: int = 9, embed: int = 256,
              kv: int = 32, ffn: int = 512, tied: bool = True, experts: int = 0) -> None:  # fmt: skip
    """Write a random llama of 8 query heads that llama.cpp's quantizer takes."""
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (64, embed), "output_norm.weight": (embed,),
    }  # fmt: skip
    if not tied:
        shapes["output.weight"] = (64, embed)
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
    head = embed // 8
    keys: dict[str, object] = {
        "general.architecture": "llama", "llama.block_count": layers, "llama.context_length": 64,
        "llama.embedding_length": embed, "llama.feed_forward_length": ffn, "llama.vocab_size": 64,
        "llama.attention.head_count": 8, "llama.attention.head_count_kv": kv // head,
        "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.dimension_count": head,
    }  # fmt: skip
    if experts:
        keys |= {"llama.expert_count": experts, "llama.expert_used_count": 2}
    infos = [TensorInfo(name, BLOCK_TYPES["F32"], shape) for name, shape in shapes.items()]
    with open_output(path, keys, infos) as output:
        for info in infos:
            values = rng.standard_normal((info.rows, info.columns), np.float32)
            output.append(info.name, values.view(np.uint8))


def quantized_by_llama_cpp(source: Path, target: Path, file_type: int) -> dict[str, str]:
    llama_cpp = pytest.importorskip("llama_cpp")
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = file_type
    params.nthread = 1
    code = llama_cpp.llama_model_quantize(bytes(source), bytes(target), ctypes.byref(params))
    assert code == 0
    with open_file(target) as file:
        return {name: info.type.name for name, info in file.tensors.items()}


TOYS: dict[str, dict[str, object]] = {
    "tied-gqa-8": {"kv": 32},
    "untied": {"kv": 256, "tied": False, "layers": 5},
    "rows-of-288": {"embed": 288, "kv": 36},
    "eight-experts": {"experts": 8, "ffn": 256, "layers": 4},
    "four-experts": {"experts": 4, "ffn": 256, "layers": 8},
    "eighty-layers": {"layers": 80, "ffn": 256, "tied": False},
}


@pytest.mark.oracle
@pytest.mark.parametrize("toy", TOYS)
def test_types_and_order_are_llama_cpps_quantizers(
    tmp_path: Path, rng: np.random.Generator, toy: str
) -> None:
    source = tmp_path / "toy.gguf"
    write_toy(source, rng, **TOYS[toy])  # type: ignore[arg-type]
    with open_file(source) as file:
        infos = list(file.tensors.values())
        sizes = read_sizes(file.values(), infos)
    recipes = ("Q4_K_M", "Q5_K_S") if toy == "eighty-layers" else RECIPES
    for name in recipes:
        theirs = quantized_by_llama_cpp(source, tmp_path / "out.gguf", RECIPES[name].file_type)
        plan = assign(RECIPES[name], infos, sizes, imatrix=False)
        assert [(a.source.name, a.type.name) for a in plan] == list(theirs.items()), name
