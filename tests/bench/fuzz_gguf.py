"""Mutate a small GGUF file many times and open each: only our errors, little memory, no hang.

    python tests/bench/fuzz_gguf.py 100000 [--seed 1]

A unit test runs it briefly; it is meant to be run longer by hand.
"""

import argparse
import random
import tempfile
import tracemalloc
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, process_time

import numpy as np

from edgequant.blocks import BLOCK_TYPES, TensorInfo
from edgequant.errors import FileError, GGUFError
from edgequant.gguf.reader import open_file
from edgequant.gguf.spec import KeyValue, ValueType, array
from edgequant.gguf.writer import open_output
from edgequant.stages.inspect import inspect

EXTREMES = (0, 1, 2, 31, 32, 33, 255, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32,
            (1 << 42) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 32, (1 << 64) - 1)  # fmt: skip


@dataclass
class Figures:
    """What a run met: outcomes by kind, the most processor time and memory that one file took."""

    outcomes: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    peak: int = 0
    seconds: float = 0.0


def write_seed(path: Path) -> bytes:
    """Write a file with every value type, an importance matrix's names, and three tensors."""
    keys = {
        "general.type": "imatrix",
        "general.alignment": 32,
        "imatrix.datasets": ["a.txt", "b.txt"],
        "tokenizer.ggml.tokens": ["a", "bc", "déf", ""],
        "tokenizer.ggml.scores": [0.5, -1.0, 2.0, 0.0],
        "empty": "",
        "split.no": KeyValue(ValueType.UINT16, 0),
        "split.count": KeyValue(ValueType.UINT16, 1),
        "split.tensors.count": KeyValue(ValueType.INT32, 3),
    }
    for kind in ValueType:
        if kind not in (ValueType.STRING, ValueType.ARRAY):
            keys[f"scalar.{kind.name}"] = KeyValue(kind, 1)
            keys[f"array.{kind.name}"] = array(kind, [1, 0, 1])
    infos = [
        TensorInfo("blk.0.ffn_up.weight.in_sum2", BLOCK_TYPES["F32"], (16,)),
        TensorInfo("blk.0.ffn_up.weight.counts", BLOCK_TYPES["F32"], (1,)),
        TensorInfo("blk.0.ffn_up.weight", BLOCK_TYPES["Q4_K"], (2, 256)),
    ]
    with open_output(path, keys, infos, force=True) as output:
        for info in infos:
            output.append(info.name, np.arange(info.nbytes, dtype=np.uint8))
    return path.read_bytes()


def mutate(rng: random.Random, content: bytes) -> bytes:
    """Damage a file in one to four places."""
    damaged = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(damaged)) if damaged else 0
        match rng.randrange(6):
            case 0:
                damaged[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del damaged[at:]
            case 2:
                del damaged[at : at + rng.randint(1, 16)]
            case 3:
                damaged[at:at] = rng.randbytes(rng.randint(1, 16))
            case 4:
                width = rng.choice((4, 8))
                value = rng.choice(EXTREMES) % (1 << 8 * width)
                damaged[at : at + width] = value.to_bytes(width, "little")
            case _:
                source = rng.randrange(len(damaged)) if damaged else 0
                damaged[at : at + 24] = damaged[source : source + 24]
    return bytes(damaged)


def use(path: Path) -> None:
    """Do with a file all that the stages do with its head and bytes."""
    with open_file(path) as file:
        file.values()
        for weight in file.weights().values():
            weight.data.sum(dtype=np.uint64)
    inspect(path)


def fuzz(mutations: int, seed: int, directory: Path) -> Figures:
    """Open `mutations` damaged files; anything but our errors passes through as it is."""
    rng = random.Random(seed)
    path = directory / "fuzzed.gguf"
    sound = write_seed(path)
    use(path)
    figures = Figures()
    begun = perf_counter()
    tracemalloc.start()
    try:
        for _ in range(mutations):
            path.unlink()  # a new file costs a tenth of one written over on ext4
            path.write_bytes(mutate(rng, sound))
            tracemalloc.reset_peak()
            start = process_time()
            try:
                use(path)
                figures.outcomes["still sound"] += 1
            except (GGUFError, FileError) as error:
                figures.outcomes[type(error).__name__] += 1
            figures.slowest = max(figures.slowest, process_time() - start)
            figures.peak = max(figures.peak, tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
        path.unlink(missing_ok=True)
    figures.seconds = perf_counter() - begun
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mutations", type=int)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        met = fuzz(arguments.mutations, arguments.seed, Path(folder))
    print(
        f"{dict(met.outcomes)}; slowest {met.slowest * 1000:.1f} ms, peak {met.peak / 1e6:.2f} MB, "
        f"{met.seconds:.0f} s in all"
    )
