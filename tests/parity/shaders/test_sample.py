"""The next token chosen on a GPU, against runtime/sampler.py: what is kept, how often it comes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from metal_on_cpu.gpu import MetalOnCpu
from numpy.typing import NDArray
from run_op import Memory, run_launches, step_record

from edgequant.blocks import BLOCK_TYPES, Floats
from edgequant.device.protocol import Gpu, Sampling
from edgequant.device.step import STEP
from edgequant.graph.kernels import sample
from edgequant.graph.launch import Call, Kind, Operand
from edgequant.runtime.sampler import candidates

pytestmark = pytest.mark.device

DRAWS = 4096
FEWER_DRAWS = 1024  # where they are slow
FLAT = 1e9  # a temperature at which all that is kept is as likely


def draw(
    gpu: Gpu,
    logits: Floats,
    sampling: Sampling,
    count: int = 1,
    *,
    threads: int | None = None,
    later: Floats | None = None,
) -> NDArray[np.uint32]:
    """Draw so many tokens from the same logits, one recording submitted again and again.

    Args:
        gpu: where.
        logits: (vocab,).
        sampling: how.
        count: of tokens.
        threads: of `sample_token`, where not as many as there may be.
        later: logits that stand in their place once `argmax` has run.
    """
    if threads is None and count > 64 and isinstance(gpu, MetalOnCpu):
        threads = 128  # what each of them costs there is counted
    limits = replace(gpu.limits, workgroup=threads or gpu.limits.workgroup)
    f16 = BLOCK_TYPES["F16"]
    call = Call(1, 1, 1, 1, (), f16, limits, inputs=((1, len(logits)),))
    launches = sample.launches(call)
    memory = Memory(gpu)
    memory.put(Kind.INPUT, logits.astype(np.float32).tobytes())
    memory.put(Kind.TOKENS, b"\xee" * 4)
    memory.put(Kind.OUTPUT, bytes(4 * sample.RING))
    record = step_record(
        past=7, tokens=1, rows=1, seed=sampling.seed or 0, temperature=sampling.temperature,
        top_k=sampling.top_k, top_p=sampling.top_p, min_p=sampling.min_p,
    )  # fmt: skip
    memory.put(Kind.STEP, record.tobytes())

    def resolve(operand: Operand) -> object:
        if operand.kind is Kind.SCRATCH:
            memory.poison(Kind.SCRATCH, operand.nbytes)
        return memory[operand.kind]

    if later is not None:
        run_launches(gpu, launches[:1], resolve)
        launches, span = launches[1:], memory[Kind.INPUT]
        gpu.write(span.buffer, later.astype(np.float32).tobytes(), span.offset)
    drawn: list[NDArray[np.uint32]] = []
    while count > 0:
        times = min(count, sample.RING)
        run_launches(gpu, launches, resolve, times)
        drawn.append(memory.get(Kind.OUTPUT, np.uint32)[:times])
        count -= times
    written: set[object] = {Kind.TOKENS, Kind.OUTPUT, Kind.STEP, Kind.SCRATCH}
    memory.check(written if later is None else written | {Kind.INPUT})
    (after,) = memory.get(Kind.STEP, STEP)
    number = sum(map(len, drawn))
    record["past"], record["drawn"] = 7 + number, number
    assert after == record
    last = drawn[-1][-1]
    assert memory.get(Kind.TOKENS, np.uint32)[0] == (0 if last == sample.NOT_FINITE else last)
    memory.free()
    return np.concatenate(drawn)


def kept(gpu: Gpu, logits: Floats, sampling: Sampling, **words: Any) -> list[int]:
    """Return what is ever drawn when all that is kept is as likely.

    Among so many draws one of them is missing with a chance of exp(-12), or exp(-4) where draws are
    slow; the seed is the same in every run.
    """
    count = len(candidates(logits, sampling, ())[0])
    surely = 4 if isinstance(gpu, MetalOnCpu) else 12
    draws = int(count * (np.log(count) + surely)) if count > 1 else 4
    return np.unique(
        draw(gpu, logits, replace(sampling, temperature=FLAT), draws, **words)
    ).tolist()


def expected(logits: Floats, sampling: Sampling) -> list[int]:
    return sorted(candidates(logits, sampling, ())[0].tolist())


@pytest.mark.parametrize("vocab", [1, 2, 127, 128, 129, 511, 512, 513, 5000, 128_256, 262_145])
def test_greedy(gpu: Gpu, vocab: int, rng: np.random.Generator) -> None:
    greedy = Sampling(temperature=0)
    logits = rng.standard_normal(vocab, np.float32)
    assert draw(gpu, logits, greedy) == [np.argmax(logits)]
    assert draw(gpu, -np.abs(logits), greedy) == [np.argmax(-np.abs(logits))]


def test_greedy_takes_the_first_of_equals(gpu: Gpu, rng: np.random.Generator) -> None:
    logits = np.round(rng.standard_normal(3000).astype(np.float32))
    assert draw(gpu, logits, Sampling(temperature=0)) == [np.argmax(logits)]
    assert draw(gpu, np.ones(1300, np.float32), Sampling(temperature=0)) == [0]
    many = np.zeros(70_000, np.float32)  # more chunks than threads
    assert draw(gpu, many, Sampling(temperature=0), threads=128) == [0]
    zeros = np.array([-0.0, 0.0, -1.0, 0.0], np.float32)
    assert draw(gpu, zeros, Sampling(temperature=0)) == [0]


@pytest.mark.parametrize("place", [0, 700, 1299])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_told(gpu: Gpu, place: int, value: float) -> None:
    logits = np.zeros(1300, np.float32)
    logits[place] = value
    for temperature in (0, 0.8):
        assert draw(gpu, logits, Sampling(temperature=temperature)) == [sample.NOT_FINITE]


FILTERS = {
    "none": Sampling(top_k=0, top_p=1, min_p=0),
    "one": Sampling(top_k=1, top_p=1, min_p=0),
    "top_k": Sampling(top_k=7, top_p=1, min_p=0),
    "top_k of all": Sampling(top_k=999, top_p=1, min_p=0),
    "top_p": Sampling(top_k=0, top_p=0.9, min_p=0),
    "no top_p": Sampling(top_k=0, top_p=0, min_p=0),
    "min_p": Sampling(top_k=0, top_p=1, min_p=0.1),
    "top_k, top_p": Sampling(top_k=12, top_p=0.7, min_p=0),
    "all": Sampling(top_k=40, top_p=0.95, min_p=0.05),
    "all, min_p least": Sampling(top_k=40, top_p=0.95, min_p=0.4),
    "top_k of the best": Sampling(top_k=7, top_p=1, min_p=1),
}


@pytest.mark.parametrize("sampling", FILTERS.values(), ids=FILTERS)
def test_what_is_kept(gpu: Gpu, sampling: Sampling, rng: np.random.Generator) -> None:
    for scale in (0.3, 2.0):
        logits = (scale * rng.standard_normal(100)).astype(np.float32)
        assert kept(gpu, logits, sampling) == expected(logits, sampling)


@pytest.mark.parametrize("sampling", FILTERS.values(), ids=FILTERS)
def test_what_is_kept_of_equals(gpu: Gpu, sampling: Sampling, rng: np.random.Generator) -> None:
    logits = np.round(2 * rng.standard_normal(100)).astype(np.float32) - 30
    # Where a sum of equal probabilities meets top_p to the last bit, NumPy's rounding decides.
    sampling = replace(sampling, top_p=min(1, sampling.top_p + 1e-4))
    assert kept(gpu, logits, sampling) == expected(logits, sampling)
    assert kept(gpu, logits * 0, sampling) == expected(logits * 0, sampling)


@pytest.mark.parametrize("threads", [128, 256])
@pytest.mark.parametrize("spread", [0.0, 0.1, 3.0])
def test_what_is_kept_of_a_large_vocabulary(
    gpu: Gpu, spread: float, threads: int, rng: np.random.Generator
) -> None:
    logits = (spread * rng.standard_normal(70_000)).astype(np.float32)
    logits[2000:2100] += spread  # many of the best come together, in few chunks
    for sampling in (
        Sampling(top_k=3, top_p=1, min_p=0),
        Sampling(top_k=7, top_p=0.6, min_p=0),
        Sampling(top_k=5, top_p=0.9, min_p=0.5),
    ):
        assert kept(gpu, logits, sampling, threads=threads) == expected(logits, sampling)


def test_what_is_kept_of_more_equals_than_threads(gpu: Gpu) -> None:
    sampling = Sampling(top_k=2, top_p=1, min_p=0)
    assert kept(gpu, np.zeros(1300, np.float32), sampling) == [0, 1]


BEST = {69_999: 5, 600: 4, 1500: 3, 60_000: 2, 5: 1}  # of chunks 136, the last, 1, 2, 117 and 0


@pytest.mark.parametrize(
    ("sampling", "read", "equals"),
    [
        (Sampling(top_k=1, top_p=1, min_p=0), 1, 1),
        (Sampling(top_k=3, top_p=1, min_p=0), 3, 1),
        (Sampling(top_k=3, top_p=1, min_p=0), 3, 300),
        (Sampling(top_k=3, top_p=0.95, min_p=0), 3, 300),
        (Sampling(top_k=0, top_p=1, min_p=0.1), 3, 1),
        (Sampling(top_k=0, top_p=0.9, min_p=0), 5, 1),
    ],
)
def test_chunks_of_which_nothing_is_kept_are_not_read(
    gpu: Gpu, sampling: Sampling, read: int, equals: int, rng: np.random.Generator
) -> None:
    """Or what lies there by then would be drawn at once."""
    logits = (rng.standard_normal(70_000) - 20).astype(np.float32)
    for place, value in BEST.items():
        logits[place] = value
    logits[1100:][:equals] = 3  # may be more than threads
    later = np.full_like(logits, 9)
    for place in list(BEST)[:read]:
        chunk = slice(place // 512 * 512, place // 512 * 512 + 512)
        later[chunk] = logits[chunk]
    drawn = kept(gpu, logits, sampling, threads=128, later=later)
    assert drawn == expected(logits, sampling)


def test_top_p_of_a_large_vocabulary(gpu: Gpu, rng: np.random.Generator) -> None:
    logits = (4 * rng.standard_normal(128_256)).astype(np.float32)
    sampling = Sampling(top_k=0, top_p=0.3, min_p=0)
    assert kept(gpu, logits, sampling) == expected(logits, sampling)


@pytest.mark.parametrize(
    ("sampling", "temperature", "vocab"),
    [
        *((sampling, 0.8, 60) for sampling in FILTERS.values()),
        (FILTERS["none"], 1.5, 60),
        (FILTERS["all"], 1.0, 21_000),
    ],
)
def test_how_often(
    gpu: Gpu, sampling: Sampling, temperature: float, vocab: int, rng: np.random.Generator
) -> None:
    """Chi-square of the draws within five deviations of its mean, and how likely they are of four.

    The second sees what is amiss with all of them at once, such as a wrong temperature.
    """
    logits = np.full(vocab, -9, np.float32)  # so that 60 tokens hold nearly all
    logits[:: vocab // 60][:60] = 1.5 * rng.standard_normal(60)
    sampling = replace(sampling, temperature=temperature, seed=5)
    ids, chances = candidates(logits, sampling, ())
    draws = FEWER_DRAWS if isinstance(gpu, MetalOnCpu) else DRAWS
    drawn = draw(gpu, logits, sampling, draws)
    counts = np.bincount(drawn, minlength=vocab)
    assert counts.sum() == counts[ids].sum()
    wanted = draws * chances
    common = wanted >= 5  # the rare ones count as one class
    seen, wanted = (np.append(a[common], a[~common].sum()) for a in (counts[ids], wanted))
    seen, wanted = seen[wanted > 0], wanted[wanted > 0]
    freedom = len(wanted) - 1
    chi2 = float(np.sum((seen - wanted) ** 2 / wanted))
    assert chi2 <= freedom + 5 * np.sqrt(2 * freedom)
    likely = np.zeros(vocab)
    likely[ids] = np.log(chances)
    mean = chances @ likely[ids]
    deviation = np.sqrt(max(0, chances @ likely[ids] ** 2 - mean**2))
    assert abs(likely[drawn].mean() - mean) <= 4 * deviation / np.sqrt(draws) + 1e-12


def noise(seed: int, drawn: int, tokens: NDArray[np.uint32]) -> NDArray[np.float64]:
    """Return -log(-log(u)) for the u of pcg4d's first word (see shaders/lib/noise.slang)."""
    v = [tokens, *(np.full_like(tokens, word) for word in (drawn, seed, 0))]
    v = [word * np.uint32(1664525) + np.uint32(1013904223) for word in v]
    for shifted in (True, False):
        for to, a, b in ((0, 1, 3), (1, 2, 0), (2, 0, 1), (3, 1, 2)):
            v[to] = v[to] + v[a] * v[b]
        if shifted:
            v = [word ^ (word >> np.uint32(16)) for word in v]
    rest = (v[0] + 0.5) / 2**32
    return np.asarray(-np.log(-np.log1p(-rest)))


def test_noise_decides(gpu: Gpu, rng: np.random.Generator) -> None:
    logits = 2 * rng.standard_normal(1000).astype(np.float32)
    every = Sampling(temperature=0.7, top_k=0, top_p=1, min_p=0, seed=3)
    ids = np.arange(1000, dtype=np.uint32)
    wanted = [np.argmax(logits / 0.7 + noise(3, drawn, ids)) for drawn in range(64)]
    assert draw(gpu, logits, every, 64).tolist() == wanted


def test_the_seed_and_the_number_give_the_token(gpu: Gpu, rng: np.random.Generator) -> None:
    logits = rng.standard_normal(1000).astype(np.float32)
    every = Sampling(temperature=1, top_k=0, top_p=1, min_p=0, seed=1)
    first, again = (draw(gpu, logits, every, 64).tolist() for _ in range(2))
    other = draw(gpu, logits, replace(every, seed=2), 64).tolist()
    assert first == again
    assert len(set(first)) > 32
    assert sum(a == b for a, b in zip(first, other, strict=True)) < 8
