"""The random models that speed is measured on: real enough to run, and not to explode."""

from pathlib import Path

import numpy as np
import pytest
from bench.make_model import SHAPES, tokenizer_keys, write_model

from edgequant.device import open_device
from edgequant.runtime.model import open_model
from edgequant.tokenizer.from_gguf import read_tokenizer


@pytest.mark.parametrize("recipe", ["Q4_K_M", "Q8_0", "Q4_0", "F16"])
def test_logits_are_neither_flat_nor_sharp(recipe: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, SHAPES["tiny"], recipe)
    with open_model(path, open_device("cpu"), context=32) as model:
        logits = model.program.run(np.arange(32, dtype=np.int32), 0, rows=32)
    assert 1 < logits.std() < 4
    assert len(set(logits.argmax(axis=1))) > 8


@pytest.mark.slow
def test_the_vocabulary_is_as_large_as_llama_3_has_it() -> None:
    keys = tokenizer_keys(128_256)
    tokens, merges = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.merges"]
    assert isinstance(tokens, list)
    assert isinstance(merges, list)
    assert (len(tokens), len(set(tokens)), len(merges)) == (128_256, 128_256, 280_147)
    assert len(set(merges)) == len(merges)
    tokenizer = read_tokenizer(keys, "here")
    ids = tokenizer.encode("bademofu gigabule", add_special=False)
    assert len(ids) <= 5
    assert tokenizer.decode(ids) == "bademofu gigabule"
