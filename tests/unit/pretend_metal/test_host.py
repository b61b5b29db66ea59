"""A whole model on the Metal host, whose kernels do nothing: what it holds, and what is noticed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pretend_metal import PretendMetal, Refused
from pretend_metal.declaring import declare
from tiny_model import write_model

from edgequant.device.gpu import GpuDevice
from edgequant.device.metal import recording
from edgequant.device.metal.device import Metal
from edgequant.device.metal.objc import SELECTORS
from edgequant.device.protocol import Generator, Sampling
from edgequant.device.unified import UnifiedGpu
from edgequant.runtime.model import open_model
from edgequant.shipped import shipped

GREEDY = Sampling(temperature=0)


@pytest.fixture
def gpu(runtime: PretendMetal) -> UnifiedGpu:
    opened = UnifiedGpu(Metal(runtime, shipped("shaders")))
    declare(opened, runtime.declared)
    return opened


@pytest.fixture
def program(gpu: UnifiedGpu, tmp_path: Path) -> Iterator[Generator]:
    path = write_model(tmp_path / "model.gguf")
    with open_model(path, GpuDevice("metal", gpu), context=64) as model:
        assert isinstance(model.program, Generator)
        yield model.program


def alive(runtime: PretendMetal) -> list[str]:
    return [thing for thing in runtime.alive() if not thing.startswith("Pipeline")]


def test_tokens_leave_nothing_behind(runtime, program):
    counts = [len(alive(runtime)) for _ in program.generate(1, 0, 40, GREEDY)]
    assert max(counts[3:]) <= max(counts[:3])
    assert runtime.executor.completed >= 40


def test_a_model_leaves_its_kernels_behind_and_the_gpu_nothing(runtime, gpu, tmp_path):
    before = alive(runtime)
    for context in (32, 64):
        path = write_model(tmp_path / f"{context}.gguf")
        with open_model(path, GpuDevice("metal", gpu), context=context) as model:
            model.program.run(model.tokenizer.encode("hello"), 0)
        assert alive(runtime) == before
    gpu.close()
    assert runtime.alive() == []


def test_every_message_of_the_host_is_sent_in_a_life(runtime, gpu, program):
    """But those that tell what went wrong."""
    list(program.generate(1, 0, 3, GREEDY))
    unsent = SELECTORS.keys() - runtime.sent.keys()
    assert unsent == {"error", "code", "localizedDescription"}


def test_a_barrier_left_out_is_noticed(runtime, program, monkeypatch):
    monkeypatch.setattr(recording, "barriers", lambda dispatches: [False] * len(dispatches))
    with pytest.raises(Refused, match="on the same bytes without a barrier"):
        program.run([1, 2, 3], 0)


def test_a_resource_left_out_is_noticed(program, gpu, monkeypatch):
    monkeypatch.setattr(recording.objc, "RESOURCE_USAGE_WRITE", 0)
    with pytest.raises(Refused, match="which was declared to be read"):
        program.run([1, 2, 3], 0)
