"""Speed of quantizing a file, ours beside llama.cpp's: same input, imatrix and number of threads.

    python tests/bench/quantize_speed.py [TYPE[:EFFORT] ...] [--gigabytes 0.5] [--threads 2]
        [--rounds 3] [--model F16.gguf --imatrix IMATRIX.gguf]

Both are whole processes, `edgequant quantize` and a Python that calls `llama_model_quantize`, and
take turns, so that what else runs on the machine slows both. Printed are the medians in MB of F16
input a second, and the medians of the rounds' ratios, ours over theirs: of whole processes; of our
process to their call alone, which leaves out that Python starts and reads the importance; and of
processor time, which other work on the machine disturbs least (Unix).

Without a model one is made, of random weights and importance in the shapes of a Llama.
"""

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from divergence import quantize_with_llama
from make_checkpoint import shape_of, write_checkpoint

from edgequant.gguf.reader import open_file
from edgequant.model.imatrix_file import write_importance
from edgequant.model.importance import Entry, ImportanceMatrix
from edgequant.stages.convert import convert

TYPES = ("Q4_K_M", "Q4_K_M:best", "Q6_K", "Q8_0")


@dataclass(frozen=True)
class Round:
    """Seconds that one file took."""

    ours: float
    theirs: float
    call: float  # of theirs
    processor: float  # theirs over ours


def make_model(folder: Path, gigabytes: float) -> tuple[Path, Path]:
    """Make an F16 model file and an importance matrix; returns their paths."""
    write_checkpoint(folder / "checkpoint", shape_of(gigabytes), seed=1)
    model, imatrix = folder / "f16.gguf", folder / "imatrix.gguf"
    convert(str(folder / "checkpoint"), model)
    rng = np.random.default_rng(1)
    with open_file(model) as file:
        entries = {
            name: Entry(
                rng.lognormal(size=(1, info.columns)).astype(np.float32), np.ones(1, np.float32)
            )
            for name, info in file.tensors.items()
            if info.rows > 1 and name != "token_embd.weight"
        }
    write_importance(imatrix, ImportanceMatrix(entries, (), 1, 512))
    return model, imatrix


def processor_seconds() -> float:
    """Return what all processes that were waited for have used, and theirs."""
    times = os.times()
    return times.children_user + times.children_system


def run(command: list[str]) -> tuple[float, float, str]:
    """Run a command; returns its seconds, those of processors, and what it printed."""
    # A processor's own choice of BLAS kernels is what users have, whatever is set here for others.
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
    started, used = time.monotonic(), processor_seconds()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return time.monotonic() - started, processor_seconds() - used, done.stdout


def measure(args: argparse.Namespace, recipe: str, effort: str, folder: Path) -> Round:
    """Make both files once."""
    shared = [str(args.model), str(folder / "theirs.gguf"), str(args.imatrix), recipe]
    theirs, their_work, call = run(
        [sys.executable, __file__, "--call", *shared, "--threads", str(args.threads)]
    )
    ours, our_work, _ = run(
        [
            sys.executable, "-m", "edgequant", "quantize", str(args.model), "--force", "-q",
            "-o", str(folder / "ours.gguf"), "--type", recipe, "--imatrix", str(args.imatrix),
            "--threads", str(args.threads), "--effort", effort or "default",
        ]
    )  # fmt: skip
    return Round(ours, theirs, float(call), their_work / our_work)


def main() -> None:
    """Print a line a type."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("types", nargs="*", metavar="TYPE[:EFFORT]", default=TYPES)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--imatrix", type=Path)
    parser.add_argument("--gigabytes", type=float, default=0.5, help="size of the model made")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--call", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.call:
        model, output, imatrix, recipe = args.types
        started = time.monotonic()
        quantize_with_llama(Path(model), Path(output), Path(imatrix), recipe, args.threads)
        print(time.monotonic() - started)
        return
    with TemporaryDirectory() as name:
        folder = Path(name)
        if args.model is None:
            args.model, args.imatrix = make_model(folder, args.gigabytes)
        megabytes = args.model.stat().st_size / 1e6
        print(f"{megabytes:,.0f} MB of input, {args.threads} threads, {args.rounds} rounds")
        print("type         ours MB/s  theirs MB/s  ratio  to the call  processors  each round")
        for wanted in args.types:
            recipe, _, effort = wanted.partition(":")
            rounds = [measure(args, recipe, effort, folder) for _ in range(args.rounds)]
            each = [r.call / r.ours for r in rounds]
            print(
                f"{wanted:12} {megabytes / median(r.ours for r in rounds):9.1f} "
                f"{megabytes / median(r.theirs for r in rounds):12.1f} "
                f"{median(r.theirs / r.ours for r in rounds):6.2f} {median(each):12.2f} "
                f"{median(r.processor for r in rounds):11.2f}  "
                f"{' '.join(f'{ratio:.2f}' for ratio in each)}",
                flush=True,
            )


if __name__ == "__main__":
    main()
