"""Whole texts of the bundled model on a GPU engine beside the NumPy one: what tests do in short.

    python tests/bench/whole_texts.py metal                   on a Mac, or a pretend one
    python tests/bench/whole_texts.py vulkan --types F16 Q8_0 Q4_K_M --int8

For every type of file: 20 prompts are continued greedily by 128 tokens; a text may part from
NumPy's only where NumPy finds the two tokens equally likely, within 1e-3 of a logit. Perplexity of
chunks of 512 tokens, prefilled and token by token, must be within 0.1%, or 1% where activations
are rounded to int8. Takes minutes on a CPU. Fails where a bound does not hold.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))

from mac import open_mac  # noqa: E402
from metal_on_cpu.library import compile_library  # noqa: E402
from pretend_metal import PretendMetal  # noqa: E402
from prompts import LENGTH, PROMPTS  # noqa: E402

from edgequant.device import open_device  # noqa: E402
from edgequant.device.gpu import GpuDevice  # noqa: E402
from edgequant.device.metal.device import Metal  # noqa: E402
from edgequant.device.protocol import Gpu, Sampling  # noqa: E402
from edgequant.device.unified import UnifiedGpu  # noqa: E402
from edgequant.device.vulkan.device import open_gpu  # noqa: E402
from edgequant.runtime.model import Model, open_model  # noqa: E402
from edgequant.shipped import shipped  # noqa: E402
from edgequant.stages.convert import convert  # noqa: E402
from edgequant.stages.quantize import quantize  # noqa: E402
from edgequant.stages.scores import surprise  # noqa: E402

MODELS = TESTS / "models"
CHUNK = 512
GAP = 1e-3  # of logits that are equally likely


def open_engine(name: str) -> Gpu:
    """Open Vulkan's first GPU, or a Mac's; where there is none, the pretend one."""
    if name == "vulkan":
        return open_gpu("")
    return open_mac() or UnifiedGpu(Metal(PretendMetal(compile_library), shipped("shaders")))


@contextmanager
def both(path: Path, gpu: Gpu, name: str, *, exact: bool) -> Iterator[tuple[Model, Model]]:
    """Open a file on a GPU and in NumPy."""
    engine = GpuDevice(name, gpu, exact=exact)
    with (
        open_model(path, engine, context=CHUNK) as model,
        open_model(path, open_device("cpu"), context=CHUNK) as cpu,
    ):
        yield model, cpu


def continued(model: Model, cpu: Model, prompt: str) -> tuple[float, bool]:
    """Return how much likelier NumPy finds another token at most, and whether texts are equal."""
    session = model.session()
    first = int(session.prefill(model.tokenizer.encode(prompt)).argmax())
    text = [first, *session.generate(first, LENGTH - 1, Sampling(temperature=0))]
    ids = np.asarray([*cpu.tokenizer.encode(prompt), *text], np.int32)
    logits = cpu.program.run(ids[:-1], 0, rows=len(text))
    chosen = np.take_along_axis(logits, np.asarray(text)[:, None], axis=1)[:, 0]
    gap = float((logits.max(axis=1) - chosen).max())
    return gap, bool((logits.argmax(axis=1) == text).all())


def perplexities(model: Model, cpu: Model, chunks: int) -> tuple[float, float, float]:
    """Return NumPy's perplexity, and the GPU's prefilled and token by token."""
    text = (MODELS / "evaluation.txt").read_text("utf-8")
    all_ids = np.asarray(model.tokenizer.encode(text), np.int32)
    if len(all_ids) < chunks * CHUNK:
        sys.exit(f"the text has {len(all_ids):,} tokens; {chunks} chunks need {chunks * CHUNK:,}.")
    found: tuple[list[float], ...] = ([], [], [])
    for ids in all_ids[: chunks * CHUNK].reshape(chunks, CHUNK):
        ids[0] = model.tokenizer.bos
        one_by_one = [model.program.run(ids[at : at + 1], at) for at in range(CHUNK)]
        for scores, logits in zip(
            found,
            (
                cpu.program.run(ids, 0, rows=CHUNK),
                model.program.run(ids, 0, rows=CHUNK),
                np.concatenate(one_by_one),
            ),
            strict=True,
        ):
            scores.extend(surprise(logits[:-1], ids[1:]))
    reference, prefilled, alone = (float(np.exp(np.mean(scores))) for scores in found)
    return reference, prefilled, alone


def compare(path: Path, gpu: Gpu, options: argparse.Namespace, *, rounds: bool) -> bool:
    """Print how a file fares; return whether all bounds hold."""
    start = time.monotonic()
    with both(path, gpu, options.device, exact=not rounds) as (model, cpu):
        reference, prefilled, alone = perplexities(model, cpu, options.chunks)
        texts = [] if rounds else [continued(model, cpu, p) for p in PROMPTS[: options.prompts]]
    worst = max(abs(prefilled / reference - 1), abs(alone / reference - 1))
    gap = max((gap for gap, _ in texts), default=0.0)
    equal = sum(equal for _, equal in texts)
    told = f"; {equal} of {len(texts)} texts equal, the largest gap {gap:.1e}" if texts else ""
    print(
        f"{path.stem}{', int8' if rounds else ''}: perplexity of {options.chunks * CHUNK} tokens "
        f"{reference:.4f} in NumPy, {prefilled:.4f} prefilled, {alone:.4f} token by token "
        f"({worst:.3%} off at most){told}; {time.monotonic() - start:.0f} s",
        flush=True,
    )
    return worst < (1e-2 if rounds else 1e-3) and gap < GAP


def main() -> None:
    """Compare each type, and fail where a bound does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("device", choices=("metal", "vulkan"))
    parser.add_argument("--types", nargs="+", default=["Q4_K_M"], help="of files")
    parser.add_argument("--prompts", type=int, default=len(PROMPTS))
    parser.add_argument("--chunks", type=int, default=1, help="of perplexity, 1 or more")
    parser.add_argument("--int8", action="store_true", help="perplexity with int8 too")
    options = parser.parse_args()
    gpu = open_engine(options.device)
    print(gpu.description, flush=True)
    right = True
    with tempfile.TemporaryDirectory() as folder:
        convert(str(MODELS / "books-6m"), Path(folder) / "F16.gguf")
        for name in options.types:
            path = Path(folder) / f"{name}.gguf"
            if not path.exists():
                quantize(Path(folder) / "F16.gguf", path, type=name)
            right &= compare(path, gpu, options, rounds=False)
            if options.int8:
                limits, gpu.limits = gpu.limits, replace(gpu.limits, integer_dot=True)
                right &= compare(path, gpu, options, rounds=True)
                gpu.limits = limits
    gpu.close()
    if not right:
        sys.exit("A bound does not hold.")


if __name__ == "__main__":
    main()
