"""The bundled model on the Metal host, which runs on a pretend Mac, against the NumPy engine.

Every kernel is the Metal source that ships, run by the CPU shim; every message goes through the
pretend Objective-C runtime, which also sees that barriers stand where they must.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from metal_on_cpu.library import compile_library
from pretend_metal import Late, PretendMetal, Threaded
from prompts import PROMPTS

from edgequant.device import open_device
from edgequant.device.gpu import GpuDevice
from edgequant.device.metal.device import Metal
from edgequant.device.protocol import Gpu, Observer, Profiler, Sampling
from edgequant.device.unified import UnifiedGpu
from edgequant.runtime.model import Model, open_model
from edgequant.shipped import shipped
from edgequant.stages.scores import surprise

pytestmark = [pytest.mark.device, pytest.mark.metal, pytest.mark.slow]
CONTEXT = 128
TEXT = Path(__file__).parents[2] / "models" / "evaluation.txt"


@pytest.fixture(scope="module")
def cpu(path: Path) -> Iterator[Model]:
    with open_model(path, open_device("cpu"), context=CONTEXT) as model:
        yield model


@contextmanager
def opened(path: Path, metal: Gpu, **options: object) -> Iterator[Model]:
    device = GpuDevice("metal", metal, **options)  # type: ignore[arg-type]
    with open_model(path, device, context=CONTEXT) as model:
        yield model


def text_ids(model: Model, count: int) -> np.ndarray:
    ids = np.asarray(model.tokenizer.encode(TEXT.read_text("utf-8")), np.int32)[:count]
    ids[0] = model.tokenizer.bos
    return ids


def surprised(logits: np.ndarray, ids: np.ndarray) -> float:
    """The perplexity of all tokens but the first."""
    return float(np.exp(surprise(logits[:-1], ids[1:]).mean()))


def nmse(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.square(found - expected).sum() / np.square(expected).sum())


@pytest.mark.parametrize(("exact", "bound"), [(True, 1e-7), (False, 3e-6)])
def test_logits_and_perplexity_prefilled(
    metal: Gpu, path: Path, cpu: Model, exact: bool, bound: float
) -> None:
    """A step of 64 tokens and one of 8; bounds as in the tests of Vulkan's end to end."""
    ids = text_ids(cpu, 72)
    expected = cpu.program.run(ids, 0, rows=len(ids))
    with opened(path, metal, exact=exact) as model:
        found = model.program.run(ids, 0, rows=len(ids))
    assert nmse(found, expected) < bound
    assert surprised(found, ids) == pytest.approx(surprised(expected, ids), rel=1e-3)


def test_perplexity_token_by_token(metal: Gpu, path: Path, cpu: Model) -> None:
    ids = text_ids(cpu, 24)
    expected = cpu.program.run(ids, 0, rows=len(ids))
    with opened(path, metal) as model:
        found = [model.program.run(ids[at : at + 1], at) for at in range(len(ids))]
    assert surprised(np.concatenate(found), ids) == pytest.approx(
        surprised(expected, ids), rel=1e-3
    )


def test_greedy_texts_are_equal(metal: Gpu, path: Path, cpu: Model) -> None:
    """Or where one differs, NumPy finds both tokens equally likely, and the rest agrees."""
    with opened(path, metal) as model:
        for prompt in PROMPTS[:2]:
            session = model.session()
            first = int(session.prefill(model.tokenizer.encode(prompt)).argmax())
            text = [first, *session.generate(first, 19, Sampling(temperature=0))]
            ids = [*cpu.tokenizer.encode(prompt), *text]
            logits = cpu.program.run(np.asarray(ids[:-1], np.int32), 0, rows=len(text))
            chosen = np.take_along_axis(logits, np.asarray(text)[:, None], axis=1)[:, 0]
            assert (logits.max(axis=1) - chosen).max() < 1e-3


def test_sampled_texts_are_likely_and_follow_the_seed(metal: Gpu, path: Path, cpu: Model) -> None:
    prompt = np.asarray(cpu.tokenizer.encode(PROMPTS[0]), np.int32)
    sampling = Sampling(temperature=1.0, top_k=5, top_p=1.0, min_p=0.0, seed=7)
    with opened(path, metal) as model:
        model.program.run(prompt[:-1], 0, rows=0)
        texts = [
            list(model.program.generate(int(prompt[-1]), len(prompt) - 1, 4, chosen))  # type: ignore[attr-defined]
            for chosen in (sampling, sampling)
        ]
    assert texts[0] == texts[1]
    ids = np.asarray([*prompt, *texts[0]], np.int32)
    logits = cpu.program.run(ids[:-1], 0, rows=4)
    for row, token in zip(logits, texts[0], strict=True):
        assert row[token] >= np.sort(row)[-5] - 1e-2


@pytest.mark.parametrize(("cache", "bound"), [("q8_0", 1e-4), ("f32", 1e-9)])
def test_types_of_kv_cache(metal: Gpu, path: Path, cpu: Model, cache: str, bound: float) -> None:
    """A step of many tokens, and one of a single token, whose attention is another kernel."""
    ids = text_ids(cpu, 20)
    expected = cpu.program.run(ids, 0, rows=2)
    with opened(path, metal, cache=cache, exact=True) as model:
        found = [model.program.run(ids[:-1], 0), model.program.run(ids[-1:], 19)]
    assert nmse(np.concatenate(found), expected) < bound


def test_observed_inputs(metal: Gpu, path: Path, cpu: Model) -> None:
    ids = text_ids(cpu, 40)
    assert isinstance(cpu.program, Observer)
    expected = cpu.program.observe(ids, 0)
    with opened(path, metal, cache="f32") as model:
        assert isinstance(model.program, Observer)
        found = model.program.observe(ids, 0)
    assert list(found) == list(expected)
    for name, sums in expected.items():
        assert found[name].count == sums.count == len(ids)
        np.testing.assert_allclose(found[name].in_sum2, sums.in_sum2, rtol=1e-3)


def test_kernels_are_timed(metal: Gpu, path: Path) -> None:
    with opened(path, metal) as model:
        assert isinstance(model.program, Profiler)
        timings = model.program.profile(text_ids(model, 9), 0)
    assert all(timing.seconds > 0 for timing in timings)
    assert {"attn_q", "ffn_down", "output_norm"} <= {timing.label for timing in timings}


@pytest.mark.usefixtures("mac")
def test_a_queue_that_runs_meanwhile_gives_the_same_text(path: Path) -> None:
    """By default command buffers run as late as can be; here as soon, while the host goes on."""
    texts = []
    for executor in (Late(order=1), Threaded(delay=0.0, order=2)):
        own = PretendMetal(compile_library, executor=executor)
        gpu = UnifiedGpu(Metal(own, shipped("shaders")))
        with opened(path, gpu) as model:
            session = model.session()
            first = int(session.prefill(model.tokenizer.encode(PROMPTS[3])).argmax())
            texts.append([first, *session.generate(first, 3, Sampling(temperature=0))])
        gpu.close()
        executor.close()
    assert texts[0] == texts[1]
