"""Recipes choose llama.cpp's types: its answers on two models, and its quantizer on toys."""

import json
from pathlib import Path

import numpy as np
import pytest
from llama_quantize import llama_quantize
from toys import write_toy

from edgequant.blocks import BLOCK_TYPES, TensorInfo
from edgequant.gguf.reader import open_file
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


TOYS: dict[str, dict[str, object]] = {
    "tied-gqa-8": {"layers": 9},
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
    write_toy(source, rng, **TOYS[toy])
    with open_file(source) as file:
        infos = list(file.tensors.values())
        sizes = read_sizes(file.values(), infos)
    recipes = ("Q4_K_M", "Q5_K_S") if toy == "eighty-layers" else RECIPES
    for name in recipes:
        llama_quantize(source, tmp_path / "out.gguf", RECIPES[name].file_type)
        plan = assign(RECIPES[name], infos, sizes, imatrix=False)
        with open_file(tmp_path / "out.gguf") as theirs:
            assert [a.info for a in plan] == list(theirs.tensors.values()), name
