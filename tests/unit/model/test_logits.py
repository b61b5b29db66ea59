"""Tiny models of every architecture have the logits that transformers gave them (golden/)."""

import json
from pathlib import Path

import numpy as np
import pytest
from assemble import GOLDEN, assemble

from edgequant.device.cpu import CpuDevice
from edgequant.model.registry import all_architectures, read_config, read_model


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_logits_are_transformers(path: Path) -> None:
    golden = np.load(path)
    architecture, h = read_config(json.loads(str(golden["config.json"])), "config.json")
    weights = assemble(architecture, h, golden)
    keys = h.to_keys(architecture.name)
    infos = {name: weight.info for name, weight in weights.items()}
    found, of_file = read_model(keys, infos, "model.gguf")
    assert found is architecture
    program = CpuDevice().load(found.record(of_file), weights, context=16)
    logits = program.run(golden["tokens"], 0, rows=len(golden["tokens"]))
    off = np.abs(logits - golden["logits"]).max() / np.abs(golden["logits"]).max()
    assert off < 2e-5


def test_every_class_has_a_golden_file() -> None:
    configs = [json.loads(str(np.load(path)["config.json"])) for path in GOLDEN]
    covered = {name for config in configs for name in config["architectures"]}
    assert covered == {name for found in all_architectures() for name in found.hf_classes}
