"""Recipes choose llama.cpp's types: its answers on two models, and its quantizer on toys."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llama_quantize import llama_quantize
from toys import toy_arrays, toy_importance, toy_keys, write_model

from edgequant.blocks import BLOCK_TYPES, TensorInfo
from edgequant.gguf.reader import open_file
from edgequant.model.assignment import assign, read_sizes
from edgequant.model.grid_recipes import GRID_RECIPES
from edgequant.model.overrides import NOTHING, Overrides, read_overrides
from edgequant.model.recipes import RECIPES
from edgequant.model.rules import Sizes

MODELS = {"books-54m": Sizes("llama", 12, 8, 4), "books-6m": Sizes("llama", 6, 4, 2)}


@pytest.mark.shared
@pytest.mark.parametrize("model", MODELS)
def test_types_are_llama_cpps_on_the_books_models(shared: Path, model: str) -> None:
    answers = json.loads((shared / "oracle" / "types.json").read_text())[model]
    assert len(answers) == 17
    config = json.loads((shared / "models" / model / "config.json").read_text())
    assert config["num_hidden_layers"] == MODELS[model].layers
    for recipe, answer in answers.items():
        infos = [
            TensorInfo(name, BLOCK_TYPES["F32"], (256,) if "norm" in name else (256, 256))
            for name in answer
        ]
        plan = assign(RECIPES[recipe], infos[::-1], MODELS[model], imatrix=True)
        assert {a.source.name: a.type.name for a in plan} == answer, recipe


TOYS: dict[str, dict[str, object]] = {
    "gqa-1": {"kv": 256, "tied": False},
    "gqa-4": {"kv": 64, "tied": False},
    "gqa-8-tied": {},
    "rows-of-288": {"embed": 288, "kv": 36},
    "eight-experts": {"experts": 8},
    "four-experts": {"experts": 4, "layers": 8, "tied": False},
    "sixteen-layers": {"layers": 16},
}
GRIDS = {recipe.name for recipe in GRID_RECIPES}
SMALL: dict[str, object] = {"ffn": 256, "vocab": 32, "layers": 3}


def check(path: Path, rng: np.random.Generator, toy: dict[str, object], *, imatrix: bool,
          recipes: list[str], architecture: str = "llama", overrides: Overrides = NOTHING,
          ) -> None:  # fmt: skip
    keys = {key.replace("llama.", f"{architecture}.", 1): v for key, v in toy_keys(**toy).items()}
    keys["general.architecture"] = architecture
    keys["falcon.attention.layer_norm_epsilon"] = 1e-5
    source = write_model(path / "toy.gguf", toy_arrays(rng, **toy), keys)
    matrix = toy_importance(rng, **toy) if imatrix else None
    with open_file(source) as file:
        infos = list(file.tensors.values())
        sizes = read_sizes(file.values(), infos)
    for name in recipes:
        llama_quantize(source, path / "out.gguf", RECIPES[name].file_type, matrix, overrides)
        plan = assign(RECIPES[name], infos, sizes, imatrix=imatrix, overrides=overrides)
        with open_file(path / "out.gguf") as theirs:
            assert [a.info for a in plan] == list(theirs.tensors.values()), name


@pytest.mark.oracle
@pytest.mark.parametrize(("toy", "imatrix"), [
    *((toy, False) for toy in TOYS), ("gqa-4", True), ("eight-experts", True),
])  # fmt: skip
def test_types_and_order_are_llama_cpps_quantizers(
    tmp_path: Path, rng: np.random.Generator, toy: str, imatrix: bool
) -> None:
    recipes = [name for name, recipe in RECIPES.items() if imatrix or not recipe.blind]
    if toy not in {"gqa-4", "eight-experts"}:  # llama.cpp takes 1 to 4 s to make each grid anew
        recipes = [name for name in recipes if name not in GRIDS]
    check(tmp_path, rng, SMALL | TOYS[toy], imatrix=imatrix, recipes=recipes)


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "falcon"])
def test_eighty_layers_and_falcon(
    tmp_path: Path, rng: np.random.Generator, architecture: str
) -> None:
    falcon = architecture == "falcon"
    toy = SMALL | {"layers": 16 if falcon else 80, "tied": False}
    recipes = ["Q2_K", "Q3_K_M", "Q3_K_L", "Q4_K_M", "Q4_K_S"] if falcon else ["Q2_K", "Q4_K_M"]
    check(tmp_path, rng, toy, imatrix=False, recipes=recipes, architecture=architecture)


@pytest.mark.oracle
@pytest.mark.parametrize("said", [
    {"pure": True},
    {"keep_output": True},
    {"output": "q8_0", "embedding": "Q5_K"},
    {"pure": True, "output": "F16", "patterns": ["attn_v=Q8_0"]},
    {"patterns": [r"ffn_(up|gate)=Q5_K", r"blk\.[0-2]\.=Q6_K", "_down=F16"]},
])  # fmt: skip
def test_overrides_are_llama_cpps(
    tmp_path: Path, rng: np.random.Generator, said: dict[str, Any]
) -> None:
    """A tensor chosen by name is not counted by the rules that spare the first few."""
    recipes = ["Q4_K_S", "Q3_K_M", "MXFP4_MOE"]
    toy = SMALL | TOYS["gqa-4"] | {"layers": 8}
    overrides = read_overrides(**said)
    check(tmp_path, rng, toy, imatrix=False, recipes=recipes, overrides=overrides)
