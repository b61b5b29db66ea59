"""Where the time of a step goes: each kernel, held against what the device can do.

A step of decode is one token, of prefill as many as a step takes; each is timed after a run to warm
up. Bytes are those a kernel must read; operations those of its weights, a product and a sum being
two.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from edgequant.device import Choice, open_device
from edgequant.device.protocol import Ceilings, Profiler, Timing
from edgequant.errors import DeviceError
from edgequant.progress import SILENT, Progress
from edgequant.runtime.model import open_model
from edgequant.runtime.session import BATCH

WARM = 0.2  # seconds


@dataclass(frozen=True)
class KernelTime:
    """All launches of one kernel for one purpose in a step.

    Attributes:
        label: the weight or op, such as "ffn_down".
        kernel: its name.
        calls: launches.
        seconds: of all of them.
        share: of the step's time.
        read_gb_per_second: bytes read, 10^9 a second.
        read_share: of the device's ceiling.
        gflop_per_second: operations with weights, 10^9 a second.
        multiply_share: of the device's ceiling.
    """

    label: str
    kernel: str
    calls: int
    seconds: float
    share: float
    read_gb_per_second: float
    read_share: float
    gflop_per_second: float
    multiply_share: float


@dataclass(frozen=True)
class Profile:
    """A step.

    Attributes:
        test: as `bench` names it: "tg1", or "pp512 @ d4096".
        device: its description.
        seconds: sum over the kernels.
        read_ceiling_gb_per_second: measured on the model's largest matrix.
        multiply_ceiling_gflop_per_second: measured on registers.
        kernels: the longest first.
    """

    test: str
    device: str
    seconds: float
    read_ceiling_gb_per_second: float
    multiply_ceiling_gflop_per_second: float
    kernels: tuple[KernelTime, ...]


def profile(
    path: Path,
    *,
    prompts: Sequence[int] = (512,),
    depths: Sequence[int] = (0,),
    repetitions: int = 5,
    device: str | Choice = "auto",
    progress: Progress = SILENT,
) -> tuple[Profile, ...]:
    """Time the kernels of a decode step and of prefill steps.

    Args:
        path: the model file.
        prompts: tokens of prefill steps, cut to what a step takes; 0 is no step.
        depths: tokens in the cache before each step.
        repetitions: timed runs of each step, of which the mean is told.
        device: as given to `--device`, or with its options.
        progress: told of steps.

    Raises:
        DeviceError: the device cannot time its kernels.
        EdgequantError: what `open_model` raises.
    """
    lengths = dict.fromkeys((1, *(min(n, BATCH) for n in prompts if n)))
    context = max(depths, default=0) + max(lengths)
    opened = open_device(device)
    with open_model(path, opened, context=context) as model:
        program = model.program
        if not isinstance(program, Profiler):
            raise DeviceError(
                f"{opened.name}: this device cannot time its kernels.",
                hint="leave out --profile, or use a GPU.",
            )
        progress.begin("profile", len(lengths) * len(depths), "steps")
        rng = np.random.default_rng(0)
        ids = rng.integers(0, model.hparams.vocab, context, dtype=np.int32)
        found: list[tuple[str, list[Sequence[Timing]]]] = []
        for depth in depths:
            session = model.session()
            if depth:
                session.prefill(ids[:depth])
            for length in lengths:
                step = ids[depth : depth + length]
                _warm_up(partial(program.profile, step, depth))
                runs = [program.profile(step, depth) for _ in range(repetitions)]
                name = f"pp{length}" if length > 1 else "tg1"
                test = f"{name} @ d{depth}" if depth else name
                found.append((test, runs))
                progress.advance(1, test)
        progress.end()
        ceilings = program.ceilings()
    return tuple(_summarize(test, opened.description, runs, ceilings) for test, runs in found)


def _warm_up(step: Callable[[], object]) -> None:
    """Run a step until a GPU's clock has risen: idle, an H200 is three times slower."""
    end = time.perf_counter() + WARM
    step()
    while time.perf_counter() < end:
        step()


def _summarize(
    test: str, device: str, runs: Sequence[Sequence[Timing]], ceilings: Ceilings
) -> Profile:
    groups: dict[tuple[str, str], list[Timing]] = {}
    for run in runs:
        for timing in run:
            groups.setdefault((timing.label, timing.kernel), []).append(timing)
    total = sum(timing.seconds for run in runs for timing in run)
    kernels = [
        _kernel(label, kernel, timings, len(runs), total, ceilings)
        for (label, kernel), timings in groups.items()
    ]
    return Profile(
        test=test,
        device=device,
        seconds=total / len(runs),
        read_ceiling_gb_per_second=ceilings.read / 1e9,
        multiply_ceiling_gflop_per_second=ceilings.multiply / 1e9,
        kernels=tuple(sorted(kernels, key=lambda kernel: -kernel.seconds)),
    )


def _kernel(
    label: str,
    kernel: str,
    timings: Sequence[Timing],
    runs: int,
    total: float,
    ceilings: Ceilings,
) -> KernelTime:
    seconds = sum(timing.seconds for timing in timings)
    counted = max(seconds, 1e-12)  # below any clock's grain
    read = sum(timing.nbytes for timing in timings) / counted
    multiply = sum(timing.operations for timing in timings) / counted
    return KernelTime(
        label=label,
        kernel=kernel,
        calls=len(timings) // runs,
        seconds=seconds / runs,
        share=seconds / max(total, 1e-12),
        read_gb_per_second=read / 1e9,
        read_share=read / ceilings.read,
        gflop_per_second=multiply / 1e9,
        multiply_share=multiply / ceilings.multiply,
    )
