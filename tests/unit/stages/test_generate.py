"""Text where the device draws the tokens: in time, counted, and ended where it should."""

from pathlib import Path
from typing import Any

import pytest
from tiny_model import CONTEXT, EOS, write_model
from watching_gpu import Watching

from edgequant.device.gpu import GpuDevice
from edgequant.device.protocol import Sampling
from edgequant.stages import generate as generate_module
from edgequant.stages.generate import Generation, generate

GREEDY = Sampling(temperature=0)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Watching:
    gpu = Watching()
    device = GpuDevice("null", gpu)
    monkeypatch.setattr(generate_module, "open_device", lambda _choice: device)
    return gpu


def run(tmp_path: Path, **options: Any) -> Generation:
    return generate(write_model(tmp_path / "m.gguf"), "hello", **options)


def test_the_device_draws_all_but_the_first(tmp_path: Path, gpu: Watching) -> None:
    texts: list[str] = []
    found = run(tmp_path, limit=6, sampling=GREEDY, emit=texts.append)
    assert (found.tokens, found.stopped) == (6, "length")
    assert found.text == "".join(texts)
    # the prompt's four; then the host's first, token 0 of logits that are all alike
    assert gpu.ids[1:] == [[0], [100], [101], [102], [103]]


def test_no_more_steps_than_tokens(tmp_path: Path, gpu: Watching) -> None:
    assert run(tmp_path, limit=1, sampling=GREEDY).tokens == 1
    assert len(gpu.steps) == 1
    assert run(tmp_path, limit=2, sampling=GREEDY).tokens == 2
    assert len(gpu.steps) == 3


def test_it_ends_with_the_context(tmp_path: Path, gpu: Watching) -> None:
    found = run(tmp_path, sampling=GREEDY)
    assert (found.tokens, found.stopped) == (CONTEXT - 4 + 1, "context")


def test_it_ends_where_the_model_does(tmp_path: Path, gpu: Watching) -> None:
    gpu.draw = iter([104, 105, EOS, 1, 2, 3])
    found = run(tmp_path, sampling=GREEDY)
    assert (found.tokens, found.stopped) == (3, "end")
    assert not gpu.flying


def test_the_seed_and_the_filters_reach_the_device(tmp_path: Path, gpu: Watching) -> None:
    found = run(tmp_path, limit=3, sampling=Sampling(0.5, 3, 0.25, 0.125))
    step = gpu.steps[-1]
    assert (step["seed"], step["temperature"], step["top_k"]) == (found.seed, 0.5, 3)


def test_a_repeat_penalty_is_the_hosts_business(tmp_path: Path, gpu: Watching) -> None:
    found = run(tmp_path, limit=3, sampling=Sampling(temperature=0, repeat_penalty=2.0))
    assert found.tokens == 3
    assert all(step[-1].label != "sample" for step in gpu.submitted)
