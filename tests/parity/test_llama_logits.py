"""llama.cpp reads the keys and tensors that we write as we do: the same logits, every variant."""

import json
from pathlib import Path

import numpy as np
import pytest
from assemble import GOLDEN, assemble

from edgequant.device import open_device
from edgequant.gguf.reader import open_file
from edgequant.gguf.writer import open_output
from edgequant.model.registry import read_config, read_model

pytest.importorskip("llama_cpp")
pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_llama_cpp_computes_the_same(path: Path, tmp_path: Path, rng: np.random.Generator) -> None:
    golden = np.load(path)
    architecture, h = read_config(json.loads(str(golden["config.json"])), "config.json")
    weights = assemble(architecture, h, golden)
    keys = h.to_keys(architecture.name) | {"tokenizer.ggml.model": "none"}
    file = tmp_path / "model.gguf"
    with open_output(file, keys, [weight.info for weight in weights.values()]) as output:
        for name, weight in weights.items():
            output.append(name, weight.data)

    tokens = rng.integers(0, h.vocab, 400).astype(np.int32)  # beyond mistral's window of 64 too
    with open_file(file) as opened:
        found, sizes = read_model(opened.values(), opened.tensors, str(file))
        graph, logits = found.record(sizes), {}
        for name in ("cpu", "llama:1"):
            program = open_device(name).load(graph, opened.weights(), context=512)
            logits[name] = program.run(tokens, 0, rows=400)
            program.close()
    off = np.abs(logits["llama:1"] - logits["cpu"]).max() / np.abs(logits["cpu"]).max()
    assert off < 5e-3  # llama.cpp keeps keys and values in float16
