"""A bundle, played by what knows nothing but its manifest: the texts are those of `run`.

The player is a program of its own with nothing but Python's standard library, and is started
without site packages. Where the driver is not the system's, as in `.ci/newer-lavapipe`, which a
program that is started does not get, it runs in this process.
"""

import io
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

import pytest
from vulkan_layers import LAYER, Watched

from edgequant.device.gpu import GpuDevice
from edgequant.device.protocol import Sampling
from edgequant.device.vulkan.device import VulkanGpu
from edgequant.gguf.reader import open_file
from edgequant.gguf.writer import open_output
from edgequant.stages import generate as generate_stage
from edgequant.stages.bundle import bundle
from edgequant.stages.convert import convert
from edgequant.stages.quantize import quantize

pytestmark = pytest.mark.device
PLAYER = Path(__file__).parents[2] / "bundle_player"
TEXT = (Path(__file__).parents[2] / "models" / "evaluation.txt").read_text("utf-8")[3000:]
CONTEXT = 600  # more than one bucket: books-6m was trained for 512, and goes on for this
SHORT = "The old man walked slowly to the sea, and" + TEXT[:200]  # a step of 64 tokens, one of few
LONG = TEXT[:1920]  # nearly 512 tokens


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bundle")


@pytest.fixture(scope="module")
def f16(folder: Path, books_6m: Path) -> Path:
    """The bundled model, said to be trained for more tokens."""
    convert(str(books_6m), folder / "short.gguf")
    with open_file(folder / "short.gguf") as file:
        keys = dict(file.keys) | {"llama.context_length": CONTEXT}
        weights = file.weights()
        with open_output(folder / "f16.gguf", keys, list(file.tensors.values())) as output:
            for name in file.tensors:
                output.append(name, weights[name].data)
    return folder / "f16.gguf"


@pytest.fixture(scope="module")
def q4(folder: Path, f16: Path) -> Path:
    quantize(f16, folder / "q4.gguf", type="Q4_K_M")
    return folder / "q4.gguf"


@pytest.fixture
def int8(gpu: VulkanGpu) -> Iterator[None]:
    """Let kernels multiply in int8, as bundles assume by default; any device can."""
    limits = gpu.limits
    gpu.limits = replace(limits, integer_dot=True)
    yield
    gpu.limits = limits


def run(gpu: VulkanGpu, model: Path, prompt: str, limit: int) -> tuple[str, int]:
    """What `edgequant run --temp 0` says on this GPU, and the tokens of the prompt."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generate_stage, "open_device", lambda _: GpuDevice("vulkan", gpu))
        report = generate_stage.generate(
            model, prompt, limit=limit, sampling=Sampling(temperature=0)
        )
    assert report.tokens == limit
    return report.text + "\n", report.prompt_tokens


def play(gpu: VulkanGpu, folder: Path, prompt: str, limit: int, **variables: str) -> str:
    """What the player says of a bundle on this GPU."""
    words = [str(folder), "-p", prompt, "-n", str(limit), "--gpu", gpu.hardware.uuid]
    if "VK_DRIVER_FILES" in os.environ:
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as said:
            patch.setattr(sys, "argv", [str(PLAYER), *words])
            patch.setattr(sys, "path", [*sys.path])
            runpy.run_path(str(PLAYER), run_name="__main__")
        return said.getvalue()
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(PLAYER), *words],
        env=os.environ | variables, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_prompt_that_takes_two_sizes_of_steps(gpu: VulkanGpu, folder: Path, f16: Path) -> None:
    """And a bundle whose first manifest is for other GPUs."""
    other = replace(gpu.limits, subgroup=64, cooperative_matrix=None)
    bundle(f16, folder / "f16", target="linux", limits=[other, gpu.limits], link=True)
    text, count = run(gpu, f16, SHORT, 24)
    assert 64 < count <= 64 + 8
    assert play(gpu, folder / "f16", SHORT, 24) == text


@pytest.mark.usefixtures("int8")
def test_a_text_that_outgrows_a_context_bucket(gpu: VulkanGpu, folder: Path, q4: Path) -> None:
    bundle(q4, folder / "q4", target="linux", limits=[gpu.limits])
    text, count = run(gpu, q4, LONG, 40)
    assert 512 - 40 < count < 512
    assert play(gpu, folder / "q4", LONG, 40) == text


def test_the_validation_layers_have_nothing_to_say(
    gpu: VulkanGpu, watched: Watched, folder: Path, q4: Path
) -> None:
    """But one thing: layers of 2022 take a pointer to bytes among the push constants for bytes."""
    if not watched.layers:
        pytest.skip("Vulkan's validation layers are not on this machine")
    bundle(q4, folder / "watched", target="linux", limits=[gpu.limits], context=64)
    said = play(gpu, folder / "watched", "The old man", 3, VK_INSTANCE_LAYERS=LAYER)
    assert set(re.findall(r"VUID-[\w-]+", said)) <= {"VUID-RuntimeSpirv-storagePushConstant8-06330"}
    assert said.endswith(run(gpu, q4, "The old man", 3)[0])
