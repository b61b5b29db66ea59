"""Measure random models of real shapes on a GPU: loading, prefill, decode, memory, host time.

    python tests/bench/gpu_model.py [--shapes llama-3.1-8b …] [--folder /dev/shm] [--json FILE]

Makes each model in the folder (`make_model.py`), then asks fresh processes for

- the time from the start of the process to the first token of a prompt of 16 tokens, the second
  time with the driver's compiled kernels kept; "own" is all but imports and the driver;
- bench's pp512, tg128, and tg64 at --depth 4096, the mean of --repeat runs;
- device memory beyond weights and KV cache, context 4096, where the driver says what is free;
- the host's time per token: from the return of one wait to the return of the next submission.

llama.cpp's figures beside them are Vulkan's on an H200, Q4_K_M, 0c1e57098.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

SHAPES = ("llama-3.1-8b", "llama-3.2-3b", "llama-3.2-1b")
CONTEXT = 4096
PATIENCE = 200  # seconds for a part
LLAMA_CPP = {  # pp512, tg128, tg64 at depth 4096
    "llama-3.1-8b": (10_966, 222, 201),
    "llama-3.2-3b": (20_840, 382, None),
    "llama-3.2-1b": (48_380, 794, None),
}
GOALS = {  # the same; the first token of the 8B model within 1.5 s, of them 1.0 s our own
    "llama-3.1-8b": (8_000, 450, 380),
    "llama-3.2-3b": (None, 760, None),
    "llama-3.2-1b": (35_000, 1_500, None),
}
COLUMNS = ("first s", "again s", "own s", "pp512", "tg128", "tg64@4096", "other MB", "host us")


def load(path: Path, device: str, began: float) -> dict[str, Any]:
    """Open a model and draw a token; then ask for memory, and time the host."""
    from edgequant.device import open_device, wake

    wake(device)
    import numpy as np

    from edgequant.device.protocol import Sampling
    from edgequant.runtime import model as parts

    imported = time.monotonic()
    greedy = Sampling(temperature=0)
    inside: dict[str, float] = {}
    for name in ("open_file", "read_model", "read_tokenizer"):
        setattr(parts, name, clocked(getattr(parts, name), name, inside))
    free: tuple[int, int] | None = None

    def opening() -> Any:
        nonlocal free
        opened = clocked(open_device, "open_device", inside)(device)
        opened.load = clocked(opened.load, "load", inside)
        free = opened._gpu.memory()
        return opened

    with parts.open_model(path, opening, context=CONTEXT) as model:
        loaded = time.monotonic()
        gpu = model.device._gpu
        session = model.session()
        ids = model.tokenizer.encode("badebidofu gomu liba doma lifu")[:16]
        if len(ids) > 1:
            session.prefill(ids[:-1])
        next(session.generate(int(ids[-1]), 1, greedy))
        first = time.monotonic()
        left = gpu.memory()
        weights = sum(info.nbytes for info in model.file.tensors.values())
        h = model.hparams
        cache = 4 * h.layers * CONTEXT * h.heads_kv * h.head_dim
        used = None if free is None or left is None else free[0] - left[0]
        timed = Timed(gpu)
        model.program._gpu = timed
        list(session.generate(int(ids[0]), 128, greedy))
        host = float(np.median(timed.taken[8:]))
    return {
        "first_token": first - began,
        "own": first - imported - inside["open_device"],
        "stages": {
            "import": imported - began, "model": loaded - imported, "first": first - loaded
        },
        "inside": inside,
        "weights": weights,
        "cache": cache,
        "used": used,
        "host_us": 1e6 * host,
        "description": model.device.description,
    }  # fmt: skip


def clocked(action: Any, name: str, taken: dict[str, float]) -> Any:
    """Return the same function, which notes how long it took."""

    def run(*args: Any, **words: Any) -> Any:
        began = time.monotonic()
        result = action(*args, **words)
        taken[name] = time.monotonic() - began
        return result

    return run


class Timed:
    """A GPU that notes the time from each wait's return to the next submission's."""

    def __init__(self, gpu: Any) -> None:
        self._gpu = gpu
        self._waited = 0.0
        self.taken: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._gpu, name)

    def wait(self, ticket: int) -> Any:
        seconds = self._gpu.wait(ticket)
        self._waited = time.perf_counter()
        return seconds

    def submit(self, recording: int) -> int:
        ticket: int = self._gpu.submit(recording)
        if self._waited:
            self.taken.append(time.perf_counter() - self._waited)
            self._waited = 0.0
        return ticket


def speeds(path: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Run bench's tests."""
    from edgequant.stages.bench import measure_speed

    said = {"repetitions": args.repeat, "device": args.device}
    near = measure_speed(path, prompts=(args.prompt,), gens=(128,), **said)
    deep = measure_speed(path, prompts=(), gens=(64,), depths=(args.depth,), **said)
    names = ("pp", "tg", "deep")
    return {n: [s.avg_ts, s.stddev_ts] for n, s in zip(names, (*near, *deep), strict=True)}


def ask(what: str, path: Path, args: argparse.Namespace, cache: str) -> dict[str, Any]:
    """Run a part in a fresh process; its last line is what it found."""
    began = time.monotonic()
    command = [
        sys.executable, "-X", "faulthandler", __file__, "--part", what, "--model", str(path),
        "--began", repr(began),
        "--device", args.device, "--repeat", str(args.repeat), "--depth", str(args.depth),
        "--prompt", str(args.prompt),
    ]  # fmt: skip
    caches = {**os.environ, "XDG_CACHE_HOME": cache}
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=caches, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return {"failed": f"not done after {PATIENCE} s"}
    if done.returncode:
        sys.stderr.write(done.stderr)
        return {
            "failed": f"exit {done.returncode}: {(done.stderr.strip() or '-').splitlines()[-1]}"
        }
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(shape: str, args: argparse.Namespace) -> dict[str, Any]:
    """Make a model and measure it."""
    from bench.make_model import SHAPES as ALL
    from bench.make_model import write_model

    with (
        tempfile.TemporaryDirectory(dir=args.folder) as folder,
        tempfile.TemporaryDirectory() as cache,
    ):
        path = Path(folder) / f"{shape}.gguf"
        began = time.perf_counter()
        write_model(path, ALL[shape], args.type)
        found: dict[str, Any] = {"shape": shape, "made": time.perf_counter() - began}
        found["cold"] = ask("load", path, args, cache)
        found["warm"] = ask("load", path, args, cache)
        found["speed"] = ask("speed", path, args, cache)
    return found


def row(found: dict[str, Any]) -> list[float | None]:
    """Return the figures of the table."""
    cold, warm, speed = found["cold"], found["warm"], found["speed"]
    used = warm.get("used")
    other = None if used is None else (used - warm["weights"] - warm["cache"]) / 1e6
    rates = [speed.get(t, [None])[0] for t in ("pp", "tg", "deep")]
    return [
        cold.get("first_token"), warm.get("first_token"), warm.get("own"), *rates, other,
        warm.get("host_us"),
    ]  # fmt: skip


def show(results: list[dict[str, Any]]) -> None:
    """Print the table."""
    print(f"{'':24}" + "".join(f"{name:>11}" for name in COLUMNS))

    def line(name: str, figures: list[float | None]) -> None:
        cells = ("" if f is None else f"{f:,.2f}" if f < 10 else f"{f:,.0f}" for f in figures)
        print(f"{name:24}" + "".join(f"{cell:>11}" for cell in cells))

    for found in results:
        line(found["shape"], row(found))
        none = [None] * 3
        for name, figures in (("llama.cpp", LLAMA_CPP), ("to reach", GOALS)):
            if found["shape"] in figures:
                line(f"  {name}", [*none, *figures[found["shape"]]])
        for part in ("cold", "warm", "speed"):
            if "failed" in found[part]:
                print(f"  {part}: {found[part]['failed']}")
        for part in ("stages", "inside"):
            stages = found["warm"].get(part, {})
            print("  " + ", ".join(f"{name} {1e3 * s:.0f} ms" for name, s in stages.items()))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", nargs="+", default=SHAPES)
    parser.add_argument("--type", default="Q4_K_M", help="a recipe")
    parser.add_argument("--device", default="vulkan")
    parser.add_argument("--folder", type=Path, help="where the models go; they are removed")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--depth", type=int, default=4096)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--part", choices=("load", "speed"), help=argparse.SUPPRESS)
    parser.add_argument("--model", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--began", type=float, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.part == "load":
        print(json.dumps(load(args.model, args.device, args.began)))
    elif args.part == "speed":
        print(json.dumps(speeds(args.model, args)))
    else:
        results = []
        for shape in args.shapes:
            results.append(measure(shape, args))
            if args.json:
                args.json.write_text(json.dumps(results, indent=1))
        show(results)


if __name__ == "__main__":
    main()
