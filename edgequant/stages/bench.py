"""Prefill and decode speed, by llama-bench's protocol and with its field names.

A test is a prefill of n_prompt random tokens ("pp"), or n_gen decodes of random tokens ("tg"), at a
depth of n_depth tokens already in the cache. Each repetition starts from the same cache: empty, or
rewound to the depth. Nothing is sampled; the logits of the last token are made each step. A device
on which tokens chain decodes the likeliest tokens instead of random ones.

Source: llama-bench.cpp, llama.cpp 0c1e57098. Differs: the tokens are drawn from a fixed seed, all
tests share one program, whose context is that of the largest, and a step takes up to 512 tokens.
"""

import platform
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from edgequant import __version__
from edgequant.device import Choice, open_device
from edgequant.device.protocol import Sampling, Tokens
from edgequant.progress import SILENT, Progress
from edgequant.runtime.model import Model, open_model
from edgequant.runtime.session import BATCH, Session


@dataclass(frozen=True)
class Speed:
    """One test, named as llama-bench names its fields; times in nanoseconds, `ts` in tokens/s.

    `build_commit` is edgequant's version; `samples_*` hold one entry a repetition, `avg_ts` is the
    mean of the rates.
    """

    build_commit: str
    cpu_info: str
    backends: str
    device: str
    activations: str
    model_filename: str
    model_type: str
    model_size: int
    model_n_params: int
    n_batch: int
    n_ubatch: int
    n_threads: int
    type_k: str
    type_v: str
    n_prompt: int
    n_gen: int
    n_depth: int
    test_time: str
    avg_ns: int
    stddev_ns: int
    avg_ts: float
    stddev_ts: float
    samples_ns: tuple[int, ...]
    samples_ts: tuple[float, ...]

    @property
    def test(self) -> str:
        """Its short name, such as "pp512" or "tg128 @ d4096"."""
        name = f"pp{self.n_prompt}" if self.n_prompt else f"tg{self.n_gen}"
        return f"{name} @ d{self.n_depth}" if self.n_depth else name


@dataclass(frozen=True)
class _Test:
    prompt: int
    gen: int
    depth: int

    @property
    def context(self) -> int:
        return self.prompt + self.gen + self.depth


def measure_speed(
    path: Path,
    *,
    prompts: Sequence[int] = (512,),
    gens: Sequence[int] = (128,),
    depths: Sequence[int] = (0,),
    repetitions: int = 5,
    device: str | Choice = "auto",
    progress: Progress = SILENT,
) -> tuple[Speed, ...]:
    """Measure a model's speed.

    Args:
        path: the model file.
        prompts: prefill lengths, tokens; 0 is no test.
        gens: decode lengths, tokens; 0 is no test.
        depths: tokens in the cache before each test; every length is measured at every depth.
        repetitions: timed runs of each test, after one to warm up.
        device: as given to `--device`, or with its options.
        progress: told of runs.

    Raises:
        EdgequantError: what `open_model` raises; UnsupportedError where the model's context is
            smaller than a test.
    """
    tests = [
        test
        for depth in depths
        for test in (*(_Test(n, 0, depth) for n in prompts), *(_Test(0, n, depth) for n in gens))
        if test.prompt or test.gen
    ]
    found = []
    longest = max((test.context for test in tests), default=1)
    with open_model(path, open_device(device), context=longest) as model:
        progress.begin("bench", len(tests) * (1 + repetitions), "runs")
        for test in tests:
            run = _Run(model, test)
            run.warm_up()
            progress.advance(1, run.name)
            samples = []
            for _ in range(repetitions):
                samples.append(run.time())
                progress.advance(1, run.name)
            found.append(_report(model, test, samples))
        progress.end()
    return tuple(found)


class _Run:
    """One test on one model, its cache filled to the depth."""

    def __init__(self, model: Model, test: _Test) -> None:
        self.name = f"pp{test.prompt}" if test.prompt else f"tg{test.gen}"
        self._test = test
        self._session: Session = model.session()
        rng = np.random.default_rng(0)
        vocab = model.hparams.vocab
        self._deep: Tokens = rng.integers(0, vocab, test.depth, dtype=np.int32)
        self._tokens: Tokens = rng.integers(0, vocab, test.prompt + test.gen, dtype=np.int32)
        tokenizer = model.tokenizer
        if tokenizer.add_bos and tokenizer.bos is not None:
            self._tokens[0] = tokenizer.bos

    def warm_up(self) -> None:
        """Fill the cache to the depth, then run the prompt once, or decode one token."""
        if len(self._deep):
            self._session.prefill(self._deep)
        self._feed(self._tokens if self._test.prompt else self._tokens[:1])

    def time(self) -> int:
        """Run the test from the depth and return its nanoseconds."""
        self._session.rewind(self._test.depth)
        began = time.perf_counter_ns()
        self._feed(self._tokens)
        return time.perf_counter_ns() - began

    def _feed(self, tokens: Tokens) -> None:
        if self._test.prompt:
            self._session.prefill(tokens)
        elif self._session.chains:
            for _ in self._session.generate(int(tokens[0]), len(tokens), Sampling(temperature=0)):
                pass
        else:
            for token in tokens:
                self._session.decode(int(token))


def _report(model: Model, test: _Test, samples: Iterable[int]) -> Speed:
    nanoseconds = np.array(list(samples), dtype=np.float64)
    rates = (test.prompt + test.gen) / (nanoseconds / 1e9)
    spread = 1 if len(rates) > 1 else 0  # of a sample: n - 1, as llama-bench
    return Speed(
        build_commit=__version__,
        cpu_info=_cpu_name(),
        backends=model.device.name,
        device=model.device.description,
        activations=model.device.activations,
        model_filename=str(model.path),
        model_type=_describe(model),
        model_size=sum(info.nbytes for info in model.file.tensors.values()),
        model_n_params=sum(info.weights for info in model.file.tensors.values()),
        n_batch=BATCH,
        n_ubatch=BATCH,
        n_threads=model.device.threads,
        type_k=model.device.cache,
        type_v=model.device.cache,
        n_prompt=test.prompt,
        n_gen=test.gen,
        n_depth=test.depth,
        test_time=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        avg_ns=round(nanoseconds.mean()),
        stddev_ns=round(nanoseconds.std(ddof=spread)),
        avg_ts=float(rates.mean()),
        stddev_ts=float(rates.std(ddof=spread)),
        samples_ns=tuple(int(n) for n in nanoseconds),
        samples_ts=tuple(float(r) for r in rates),
    )


def _describe(model: Model) -> str:
    """Say what the file is, such as "llama Q4_K": its architecture and its commonest format."""
    bytes_of: dict[str, int] = {}
    for info in model.file.tensors.values():
        bytes_of[info.type.name] = bytes_of.get(info.type.name, 0) + info.nbytes
    return f"{model.architecture.name} {max(bytes_of, key=lambda name: bytes_of[name])}"


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
