"""The bundled model on every Vulkan device of the machine, against the NumPy engine.

The float path (`exact`) differs from it by the order of sums and by the KV cache in F16; the int8
path, forced here where a device's own limits do not ask for it, also rounds activations to 8 bits.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typed
from prompts import LENGTH, PROMPTS
from tiny_model import write_model

from edgequant.device import open_device
from edgequant.device.gpu import GpuDevice
from edgequant.device.protocol import Gpu, Profiler, Sampling
from edgequant.model.imatrix_file import read_importance
from edgequant.runtime.model import Model, open_model
from edgequant.stages.convert import convert
from edgequant.stages.quantize import quantize
from edgequant.stages.scores import surprise

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("quiet")]
CONTEXT = 512
TEXT = Path(__file__).parents[2] / "models" / "evaluation.txt"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("end_to_end")


@pytest.fixture(scope="module")
def f16(folder: Path, books_6m: Path) -> Path:
    convert(str(books_6m), folder / "f16.gguf")
    return folder / "f16.gguf"


@pytest.fixture(scope="module", params=["F16", "Q8_0", "Q4_K_M"])
def file(request: pytest.FixtureRequest, folder: Path, f16: Path) -> Path:
    if request.param == "F16":
        return f16
    path = folder / f"{request.param}.gguf"
    if not path.exists():
        quantize(f16, path, type=request.param)
    return path


@pytest.fixture(scope="module")
def cpu(file: Path) -> Iterator[Model]:
    with open_model(file, open_device("cpu"), context=CONTEXT) as model:
        yield model


@contextmanager
def opened(path: Path, gpu: Gpu, **options: object) -> Iterator[Model]:
    device = GpuDevice("vulkan", gpu, **options)  # type: ignore[arg-type]
    with open_model(path, device, context=CONTEXT) as model:
        yield model


@contextmanager
def int8(gpu: Gpu) -> Iterator[None]:
    """Let kernels round activations to int8, whether or not the device is fast at it."""
    limits = gpu.limits
    gpu.limits = replace(limits, integer_dot=True)
    yield
    gpu.limits = limits


def text_ids(model: Model, start: int, count: int) -> np.ndarray:
    ids = np.asarray(model.tokenizer.encode(TEXT.read_text("utf-8")), np.int32)[start:][:count]
    ids[0] = model.tokenizer.bos
    return ids


def surprised(logits: np.ndarray, ids: np.ndarray) -> float:
    """The perplexity of all tokens but the first eighth."""
    first = len(ids) // 8
    return float(np.exp(surprise(logits[first:-1], ids[first + 1 :]).mean()))


def decoded(model: Model, ids: np.ndarray) -> np.ndarray:
    """The logits of each token, fed alone."""
    return np.concatenate([model.program.run(ids[at : at + 1], at) for at in range(len(ids))])


def test_logits_and_perplexity_prefilled(gpu: Gpu, file: Path, cpu: Model) -> None:
    """Of F16 a step of the largest bucket, of the others one of 64 tokens and one of 8."""
    ids = text_ids(cpu, 0, 260 if file.stem == "f16" else 72)
    expected = cpu.program.run(ids, 0, rows=len(ids))
    # Rounding to F16 is off by 1.4e-4 of a value (root of the mean square), 2e-8 squared: keys
    # and values in the cache and, where matrices are cooperative, both factors of every product.
    # Some 30 products follow one another in 6 layers: 30 * 2 * 2e-8 is 1.2e-6.
    for exact, bound in ((True, 1e-7), (False, 3e-6)):
        with opened(file, gpu, exact=exact) as model:
            found = model.program.run(ids, 0, rows=len(ids))
            assert np.square(found - expected).sum() < bound * np.square(expected).sum()
            assert surprised(found, ids) == pytest.approx(surprised(expected, ids), rel=1e-3)


def test_perplexity_token_by_token(gpu: Gpu, file: Path, cpu: Model) -> None:
    ids = text_ids(cpu, 300, 64)
    expected = surprised(cpu.program.run(ids, 0, rows=len(ids)), ids)
    with opened(file, gpu, exact=True) as model:
        assert surprised(decoded(model, ids), ids) == pytest.approx(expected, rel=1e-3)
    if file.stem != "f16":
        with int8(gpu), opened(file, gpu) as model:
            assert surprised(decoded(model, ids), ids) == pytest.approx(expected, rel=1e-2)


def test_a_cache_of_q8_0(gpu: Gpu, f16: Path) -> None:
    """Rounding to 8 bits of each 32 is off by 2^-9 of the largest: 1e-5 of the squares or so."""
    with open_model(f16, open_device("cpu"), context=CONTEXT) as cpu:
        ids = text_ids(cpu, 0, 60)
        expected = cpu.program.run(ids, 0, rows=60)
    with opened(f16, gpu, cache="q8_0", exact=True) as model:
        found = model.program.run(ids, 0, rows=60)
        assert np.square(found - expected).sum() < 1e-4 * np.square(expected).sum()
        one_more = model.program.run(ids[-1:], 59)
        assert np.square(one_more - expected[-1]).sum() < 1e-4 * np.square(expected[-1]).sum()


@pytest.mark.slow
def test_greedy_texts_are_equal(gpu: Gpu, f16: Path) -> None:
    """Or where one differs, NumPy finds both tokens equally likely, and the rest agrees."""
    texts: dict[str, list[int]] = {}
    with opened(f16, gpu) as model:
        for prompt in PROMPTS:
            session = model.session()
            first = int(session.prefill(model.tokenizer.encode(prompt)).argmax())
            drawn = session.generate(first, LENGTH - 1, Sampling(temperature=0))
            texts[prompt] = [first, *drawn]
    with open_model(f16, open_device("cpu"), context=CONTEXT) as cpu:
        for prompt, text in texts.items():
            assert len(text) == LENGTH
            ids = [*cpu.tokenizer.encode(prompt), *text]
            logits = cpu.program.run(np.asarray(ids[:-1], np.int32), 0, rows=LENGTH)
            chosen = np.take_along_axis(logits, np.asarray(text)[:, None], axis=1)[:, 0]
            assert (logits.max(axis=1) - chosen).max() < 1e-3


def test_kernels_are_timed(gpu: Gpu, f16: Path) -> None:
    with opened(f16, gpu) as model:
        assert isinstance(model.program, Profiler)
        timings = model.program.profile(text_ids(model, 0, 9), 0)
        assert all(timing.seconds >= 0 for timing in timings)
        assert sum(timing.seconds for timing in timings) > 0
        assert {"attn_q", "ffn_down", "output_norm"} <= {timing.label for timing in timings}
        ceilings = model.program.ceilings()
    assert 1e7 < ceilings.read < 1e14
    assert 1e7 < ceilings.multiply < 1e16


def test_the_commands_run_on_it(gpu: Gpu, tmp_path: Path) -> None:
    """Through the command line, the device is opened by name; `gpu` only says there is one."""
    path = write_model(tmp_path / "m.gguf")
    options = ("-p", "hello", "-n", "12", "--temp", "0")
    texts = {
        device: typed.read_json("run", path, *options, "--device", device)
        for device in ("vulkan", "cpu")
    }
    assert texts["vulkan"]["text"] == texts["cpu"]["text"]
    assert texts["vulkan"]["stopped"] == "length"
    small = ("-p", "9", "-n", "3", "-r", "1", "--device", "vulkan", "--cache-type", "f32")
    (prefill, decode) = typed.read_json("bench", path, *small)
    assert (prefill["type_k"], decode["n_gen"]) == ("f32", 3)
    assert decode["avg_ts"] > 0
    scored = ("-f", TEXT, "--ctx", "32", "--chunks", "2")
    found, expected = (
        typed.read_json("perplexity", path, *scored, "--device", device)["perplexity"]
        for device in ("vulkan", "cpu")
    )
    assert found == pytest.approx(expected, rel=1e-3)
    (same,) = typed.read_json("compare", path, path, *scored, "--device", "vulkan")["candidates"]
    assert same["kl"] < 1e-6
    for device in ("vulkan", "cpu"):
        typed.read_json("imatrix", path, "-o", tmp_path / device, *scored, "--device", device)
    found, expected = (read_importance(tmp_path / device) for device in ("vulkan", "cpu"))
    for name, entry in expected.entries.items():
        np.testing.assert_allclose(found.entries[name].in_sum2, entry.in_sum2, rtol=1e-3)
    profiles = typed.read_json("bench", path, *small, "--profile", "--exact")
    assert [step["test"] for step in profiles] == ["tg1", "pp9"]
    assert all(step["kernels"] for step in profiles)


def test_observed_inputs(gpu: Gpu, f16: Path) -> None:
    with open_model(f16, open_device("cpu"), context=CONTEXT) as cpu:
        ids = text_ids(cpu, 0, 130)
        expected = cpu.program.observe(ids, 0)  # type: ignore[attr-defined]
    with opened(f16, gpu, cache="f32") as model:
        found = model.program.observe(ids, 0)  # type: ignore[attr-defined]
    assert list(found) == list(expected)
    for name, sums in expected.items():
        assert found[name].count == sums.count == 130
        np.testing.assert_allclose(found[name].in_sum2, sums.in_sum2, rtol=1e-3)
