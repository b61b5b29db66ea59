"""Speed of encoding and decoding on one core, ours beside ggml's in one run.

    python tests/bench/bench_formats.py [--rows 64] [--columns 4096] [--seconds 1]
        [--effort default] [FORMAT ...]

Encoding is counted in MB of float16 input a second, decoding in MB of float32 output. Both take
turns, and the best of each counts: what else runs on the machine only ever slows them.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from libggml import ggml_quantize

from edgequant.formats import Effort, dequantize, find, names, quantize

Work = Callable[[], object]


def fastest(works: Sequence[Work], seconds: float) -> list[float]:
    """Return the least seconds of processor time of each work, run in turns."""
    best = [np.inf] * len(works)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for i, work in enumerate(works):
            started = time.thread_time()
            work()
            best[i] = min(best[i], time.thread_time() - started)
    return best


def main() -> None:
    """Print a line a format, with importance and without."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("formats", nargs="*", metavar="FORMAT")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--columns", type=int, default=4096)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each line")
    parser.add_argument("--effort", type=Effort, default=Effort.DEFAULT)
    chosen = parser.parse_args()
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(chosen.rows, chosen.columns)).astype(np.float32)
    lognormal = rng.lognormal(size=chosen.columns).astype(np.float32)
    megabytes = rows.size * 2 / 1e6
    print("format  importance  ours MB/s  ggml MB/s  ratio  decode MB/s")
    for name in chosen.formats or names():
        fmt = find(name)
        encoded = quantize(fmt, rows)
        for importance in (lognormal, None):
            ours, theirs, decoding = fastest(
                [
                    lambda: quantize(fmt, rows, importance, effort=chosen.effort),  # noqa: B023 -- used up now
                    lambda: ggml_quantize(name, rows, importance),  # noqa: B023
                    lambda: dequantize(fmt, encoded),  # noqa: B023
                ],
                chosen.seconds,
            )
            print(
                f"{name:7} {'no' if importance is None else 'yes':>10} {megabytes / ours:10.1f} "
                f"{megabytes / theirs:10.1f} {theirs / ours:6.2f} {2 * megabytes / decoding:12.0f}"
            )


if __name__ == "__main__":
    main()
