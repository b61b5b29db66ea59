"""Show where the time goes from the start of `edgequant run` to its first token, thread by thread.

    python tests/bench/first_token.py MODEL.gguf [--device vulkan] [--runs 3]
    python tests/bench/first_token.py --shape llama-3.1-8b [--folder /dev/shm]

Runs the command in a fresh process, a few times, and prints of each the first token's time; of the
quickest a timeline: what began and ended when, in milliseconds since the process was started. Calls
of one function that are many on a thread are one line, with how many there were and their sum. With
--shape a random model is made first (`make_model.py`). "own" is all but what the main thread spends
on imports, up to the command's first call, and on opening the device. What the driver compiles is
kept from run to run.
"""

import argparse
import functools
import importlib.machinery
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

STAGES = {
    "edgequant.cli.run": ("_write",),
    "edgequant.device": ("open_device", "_open"),
    "edgequant.device.gpu": ("GpuDevice.load",),
    "edgequant.device.program": ("GpuProgram.run",),
    "edgequant.device.recorder": ("plan_bucket", "Recorder._record", "Recorder._bind"),
    "edgequant.device.resident": ("Arrival.settle", "Resident.alloc", "Resident.adopt"),
    "edgequant.device.self_test": ("SelfTest.ensure",),
    "edgequant.device.vulkan.device": (
        "open_gpu",
        "notes_of",
        "VulkanGpu.adopt",
        "VulkanGpu.memory",
    ),
    "edgequant.device.vulkan.hardware": ("_start", "create_instance", "enumerate_devices"),
    "edgequant.device.vulkan.logical": ("Logical.__init__", "Logical.wait"),
    "edgequant.device.vulkan.memory": ("Memory.allocate",),
    "edgequant.device.vulkan.pipelines": ("Pipelines.__init__", "Pipelines._compile"),
    "edgequant.device.vulkan.recording": ("Encoded.__init__", "Encoded._encode"),
    "edgequant.device.vulkan.transfer": ("Transfer.upload", "Transfer.zero", "memmove"),
    "edgequant.gguf.reader": ("open_file", "GGUFFile.values", "GGUFFile.weights"),
    "edgequant.graph.fuse": ("fuse",),
    "edgequant.graph.trim": ("trim",),
    "edgequant.model.architecture": ("Architecture.record",),
    "edgequant.model.registry": ("read_model",),
    "edgequant.runtime.model": ("open_model",),
    "edgequant.runtime.session": ("Session.prefill",),
    "edgequant.stages.generate": ("generate",),
    "edgequant.tokenizer.from_gguf": ("read_tokenizer",),
    "edgequant.tokenizer.tokenizer": ("Tokenizer.encode",),
}
IMPORTS = ("numpy", "click", "rich.progress", "rich.console", "tokenizers", "jinja2", "secrets",
           "edgequant.cli.run", "edgequant.stages.generate", "edgequant.device.gpu")  # fmt: skip
MANY = 4  # calls of one function on one thread that are still shown one by one
PROMPT = "badebidofu gomu liba doma lifu badebidofu gomu liba doma lifu"


@dataclass
class Call:
    """What ran, on which thread, from when to when in ms; `depth` inside others."""

    name: str
    thread: str
    depth: int
    began: float
    ended: float
    count: int = 1
    total: float = 0.0


class Clock:
    """Notes calls; `watch` makes it do so for the functions of modules yet to be imported."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.calls: list[Call] = []
        self._inside = threading.local()

    def now(self) -> float:
        """Return the milliseconds since the process was started."""
        return 1e3 * (time.monotonic() - self.began)

    def timed(self, name: str, action: Any) -> Any:
        """Return a function whose calls are noted."""

        @functools.wraps(action)
        def run(*args: Any, **words: Any) -> Any:
            depth = getattr(self._inside, "depth", 0)
            self._inside.depth = depth + 1
            began = self.now()
            try:
                return action(*args, **words)
            finally:
                thread = threading.current_thread().name
                self.calls.append(Call(name, thread, depth, began, self.now()))
                self._inside.depth = depth

        return run

    def find_spec(self, name: str, path: Any, _target: Any = None) -> Any:
        """Find a module as Python does, and time its import or its functions."""
        if name not in STAGES and name not in IMPORTS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module
        if name in IMPORTS:
            execute = self.timed(f"import {name}", execute)

        def load(module: ModuleType) -> None:
            execute(module)
            for function in STAGES.get(name, ()):
                *owners, last = function.split(".")
                owner = functools.reduce(getattr, owners, module)
                setattr(owner, last, self.timed(function, getattr(owner, last)))

        spec.loader.exec_module = load  # type: ignore[method-assign]
        return spec


def run(model: Path, device: str, began: float, report: Path) -> None:
    """Be the command, and write what was noted."""
    clock = Clock(began)
    started = clock.now()
    sys.meta_path.insert(0, clock)  # type: ignore[arg-type]
    from edgequant.cli import main

    command = ["run", str(model), "-p", PROMPT, "-n", "2", "--temp", "0", "--quiet"]
    sys.argv = ["edgequant", *command, "--device", device]
    try:
        main()
    finally:
        calls = [Call("python starts", "MainThread", 0, 0.0, started), *clock.calls]
        report.write_text(json.dumps([vars(call) for call in calls]))


def measure(model: Path, device: str, cache: str) -> list[Call]:
    """Run the command in a fresh process and return its calls."""
    report = Path(cache) / "calls.json"
    command = [sys.executable, __file__, str(model), "--device", device, "--report", str(report)]
    said = {**os.environ, "XDG_CACHE_HOME": cache}
    began = time.monotonic()
    subprocess.run(
        [*command, "--began", repr(began)], env=said, check=True, stdout=subprocess.DEVNULL
    )
    return [Call(**call) for call in json.loads(report.read_text())]


def joined(calls: Sequence[Call]) -> list[Call]:
    """Return the calls in order of their beginning, the many of one function and thread as one."""
    groups: dict[tuple[str, str], list[Call]] = {}
    for call in sorted(calls, key=lambda call: call.began):
        groups.setdefault((call.name, call.thread), []).append(call)
    found = []
    for (name, thread), group in groups.items():
        for call in group:
            call.total = call.ended - call.began
        if len(group) <= MANY:
            found += group
        else:
            ended, total = max(c.ended for c in group), sum(c.total for c in group)
            depth = min(c.depth for c in group)
            found.append(Call(name, thread, depth, group[0].began, ended, len(group), total))
    return sorted(found, key=lambda call: call.began)


def first_token(calls: Sequence[Call]) -> tuple[float, float]:
    """Return when the first text was written, and our own share of it, in ms."""
    text = next(c.began for c in sorted(calls, key=lambda c: c.began) if c.name == "_write")
    begun = next(c.began for c in calls if c.name == "generate")
    opening = sum(c.ended - c.began for c in calls if c.name == "open_device")
    return text, text - begun - opening


def show(calls: Sequence[Call]) -> None:
    """Print a timeline."""
    text, own = first_token(calls)
    print(f"first token after {text:,.0f} ms, own {own:,.0f} ms\n")
    print(f"{'began':>8}{'ended':>8}{'ms':>8}")
    for call in joined(calls):
        if call.began <= text:
            many = f" x {call.count}" if call.count > 1 else ""
            thread = "" if call.thread == "MainThread" else f"   [{call.thread}]"
            name = "  " * call.depth + call.name
            print(f"{call.began:8.0f}{call.ended:8.0f}{call.total:8.1f}  {name}{many}{thread}")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--shape", help="of a random model to make")
    parser.add_argument("--folder", type=Path, help="where it is made; it is removed")
    parser.add_argument("--device", default="vulkan")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--began", type=float, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.report:
        run(args.model, args.device, args.began, args.report)
        return
    with (
        tempfile.TemporaryDirectory(dir=args.folder) as folder,
        tempfile.TemporaryDirectory() as cache,
    ):
        model = args.model
        if args.shape:
            sys.path.insert(0, str(Path(__file__).parents[1]))
            from bench.make_model import SHAPES, write_model

            model = Path(folder) / f"{args.shape}.gguf"
            write_model(model, SHAPES[args.shape], "Q4_K_M")
        runs = [measure(model, args.device, cache) for _ in range(args.runs + 1)]
    for number, calls in enumerate(runs):
        text, own = first_token(calls)
        kept = "" if number else " (the driver compiles)"
        print(f"run {number}: first token {text:,.0f} ms, own {own:,.0f} ms{kept}")
    show(min(runs[1:], key=first_token))


if __name__ == "__main__":
    main()
