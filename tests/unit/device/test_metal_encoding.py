"""What a token costs the Metal host: encoding is cheap, and done while the token before runs."""

import ctypes
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from pretend_metal import PretendMetal, Threaded
from tiny_model import write_model

from edgequant.device.gpu import GpuDevice
from edgequant.device.metal.device import Metal
from edgequant.device.metal.objc import AppleRuntime, Messages, Size
from edgequant.device.metal.pipelines import Pipeline
from edgequant.device.metal.recording import Recorded
from edgequant.device.protocol import Generator, Sampling
from edgequant.device.unified import UnifiedGpu
from edgequant.graph.launch import Dispatch, Span
from edgequant.runtime.model import open_model
from edgequant.shipped import shipped

DISPATCHES = 300
DELAY = 0.02  # seconds a command buffer takes
TOKENS = 12


class Nothing(AppleRuntime):
    """Apple's runtime as far as Python goes; every message reaches C's `labs`, which returns."""

    def __init__(self) -> None:
        self._send = ctypes.cast(ctypes.CDLL(None).labs, ctypes.c_void_p).value
        self._selector = lambda _: 1


class Still:
    """Stands for compiled Metal: kernels that do nothing."""

    shared_nbytes = 0

    def __init__(self, source: str, constants: Mapping[int, int]) -> None:
        pass

    def dispatch(self, *_: object, **__: object) -> None:
        pass


def test_encoding_300_dispatches_takes_less_than_a_millisecond() -> None:
    pipelines = [Pipeline(state, Size(128, 1, 1)) for state in (1, 2)]
    spans = [Span(1, 0, 256), Span(1, 256, 256)]
    dispatches = [
        Dispatch("k", (), bytes(72), (64, 1, 1), reads=(spans[i % 2],), writes=(spans[1 - i % 2],))
        for i in range(DISPATCHES)
    ]
    alternating = [pipelines[i % 2] for i in range(DISPATCHES)]
    recorded = Recorded(Messages(Nothing()), dispatches, alternating, {1: 3}, timed=False)
    taken = []
    for _ in range(100):
        start = time.perf_counter()
        recorded.commit(4)
        taken.append(time.perf_counter() - start)
    assert min(taken) < 1e-3


def test_the_next_token_is_encoded_while_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Encoding is made to take half a delay: one after the other, a token would take 1.5."""
    executor = Threaded(DELAY)
    commit = executor.commit

    def slow(commands: object) -> None:
        time.sleep(DELAY / 2)
        commit(commands)  # type: ignore[arg-type]

    monkeypatch.setattr(executor, "commit", slow)
    gpu = UnifiedGpu(Metal(PretendMetal(Still, executor=executor), shipped("shaders")))
    path = write_model(tmp_path / "model.gguf")
    with open_model(path, GpuDevice("metal", gpu), context=32) as model:
        assert isinstance(model.program, Generator)
        taken = []
        for _ in range(3):  # the machine may be busy with something else
            start = time.perf_counter()
            drawn = list(model.program.generate(1, 0, TOKENS, Sampling(temperature=0)))
            taken.append(time.perf_counter() - start)
            assert len(drawn) == TOKENS
            if taken[-1] < 1.2 * TOKENS * DELAY:
                break
    gpu.close()
    executor.close()
    assert TOKENS * DELAY < min(taken) < 1.2 * TOKENS * DELAY
