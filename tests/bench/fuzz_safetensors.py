"""Mutate the header of a small shard many times and read each: only our errors, no hang.

    python tests/bench/fuzz_safetensors.py 100000 [--seed 1]

Prints how many were refused, the slowest, and the most memory that one took. A unit test runs it
briefly; it is meant to be run longer by hand.
"""

import argparse
import json
import random
import struct
import tempfile
import time
import tracemalloc
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from edgequant.errors import CheckpointError
from edgequant.source.shard import DTYPES, Shard

MOST_BYTES = 64 << 20
MOST_SECONDS = 5.0  # a hang, not a busy machine
NUMBERS = (-1, 0, 1, 2, 7, 8, 255, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1,
           10**30, 0.5, 1e308, float("inf"), float("nan"), True, None, "8", [], {})  # fmt: skip
SEED_HEADER = {
    "__metadata__": {"format": "pt"},
    "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "b": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},
    "c": {"dtype": "F16", "shape": [0, 5], "data_offsets": [32, 32]},
    "d": {"dtype": "I64", "shape": [], "data_offsets": [32, 40]},
}
SEED = json.dumps(SEED_HEADER).encode()
BODY = bytes(range(40))


@dataclass
class Figures:
    """What a run met: outcomes by kind, the slowest shard, the most memory one shard took."""

    outcomes: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    peak: int = 0


def mutate(rng: random.Random) -> bytes:
    """Return a shard with something wrong, at times nothing."""
    header = SEED
    for _ in range(rng.randint(1, 3)):
        header = rng.choice((_flip, _cut, _repeat, _renumber, _restructure))(header, rng)
    body = BODY[: rng.choice((40, 40, 40, rng.randint(0, 40)))] + bytes(rng.choice((0, 0, 0, 3)))
    length = len(header)
    if rng.random() < 0.1:
        length = rng.choice([*(n for n in NUMBERS[:12] if n >= 0), length + rng.randint(-3, 3)])
    return struct.pack("<Q", length % (1 << 64)) + header + body


def _flip(text: bytes, rng: random.Random) -> bytes:
    changed = bytearray(text)
    for _ in range(rng.randint(1, 4)):
        if changed:
            changed[rng.randrange(len(changed))] = rng.choice((rng.randrange(256), *b'{}[]",:0-9'))
    return bytes(changed)


def _cut(text: bytes, rng: random.Random) -> bytes:
    start, stop = sorted(rng.choices(range(len(text) + 1), k=2))
    return text[:start] if rng.random() < 0.3 else text[:start] + text[stop:]


def _repeat(text: bytes, rng: random.Random) -> bytes:
    start, stop = sorted(rng.choices(range(len(text) + 1), k=2))
    return text[:stop] + text[start:stop] * rng.choice((1, 2, 50)) + text[stop:]


def _renumber(text: bytes, rng: random.Random) -> bytes:
    digits = [i for i, byte in enumerate(text) if 48 <= byte < 58]
    if not digits:
        return text
    at = rng.choice(digits)
    return text[:at] + json.dumps(rng.choice(NUMBERS)).encode() + text[at + 1 :]


def _restructure(text: bytes, rng: random.Random) -> bytes:
    try:
        header = json.loads(text)
        entry = header[rng.choice(sorted(header))]
        key = rng.choice(sorted(entry))
        if rng.random() < 0.5:
            entry[key] = rng.choice((*NUMBERS, *DTYPES, "F8_E4M3", "F4", "", "Q4"))
        elif isinstance(entry[key], list):
            entry[key].insert(rng.randint(0, 2), rng.choice(NUMBERS))
        else:
            del entry[key]
        return json.dumps(header).encode()
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return text


def read_all(path: Path) -> str:
    """Open a shard and read the first rows of each float tensor; returns what came of it."""
    try:
        shard = Shard(path)
        for entry in shard.entries.values():
            if entry.dtype in DTYPES and entry.shape:
                tensor = shard.tensor(entry)
                rows = tensor.read(0, min(3, entry.shape[0]))
                assert rows.shape == (min(3, entry.shape[0]), *entry.shape[1:])
    except CheckpointError:
        return "refused"
    return "read"


def fuzz(rounds: int, seed: int, directory: Path) -> Figures:
    """Run `rounds` mutations; raises on anything but a reading or one of our errors."""
    rng = random.Random(seed)
    figures = Figures()
    path = directory / "model.safetensors"
    tracemalloc.start()
    try:
        for _ in range(rounds):
            content = mutate(rng)
            path.write_bytes(content)
            tracemalloc.reset_peak()
            before, started = tracemalloc.get_traced_memory()[0], time.perf_counter()
            try:
                outcome = read_all(path)
            except BaseException:
                (directory / "failed.safetensors").write_bytes(content)
                raise
            figures.slowest = max(figures.slowest, time.perf_counter() - started)
            figures.peak = max(figures.peak, tracemalloc.get_traced_memory()[1] - before)
            figures.outcomes[outcome] += 1
    finally:
        tracemalloc.stop()
    return figures


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rounds", type=int)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="fuzz-"))
    figures = fuzz(args.rounds, args.seed, directory)
    print(
        f"{args.rounds:,} mutations: {dict(figures.outcomes)}, "
        f"slowest {1000 * figures.slowest:.1f} ms, most memory {figures.peak / 1e6:.2f} MB"
    )
    if figures.peak > MOST_BYTES or figures.slowest > MOST_SECONDS:
        raise SystemExit("too much")


if __name__ == "__main__":
    main()
