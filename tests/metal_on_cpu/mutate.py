"""How many mechanical changes of Metal's kernels the parity tests catch.

    python tests/metal_on_cpu/mutate.py                 each change once, in one kernel that has it
    python tests/metal_on_cpu/mutate.py --every         each change in every kernel: half an hour
    python tests/metal_on_cpu/mutate.py --share 0.05    of them, every twentieth; always the same

First the parity tests run once, to know which of them run which kernels. Then every mutant of a
kernel (mutants.py) meets these tests, the quickest first, in a process of its own, until one fails.
A mutant that does not compile is caught; one of which the compiler makes the same code is no
change. Survivors are told; survivors.txt lists them with the reason. Fails where one is not listed,
or fewer than 95% are caught.

In the folder EDGEQUANT_METAL_CACHE, if there is one, is kept which tests run what, and which
changes of a kernel were caught, until it, its tests or the shim change: a run that was ended goes
on.
"""

import argparse
import hashlib
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))

from _pytest.runner import runtestprotocol  # noqa: E402

from edgequant.device.kernel_files import METAL  # noqa: E402
from edgequant.shipped import shipped  # noqa: E402
from metal_on_cpu.gpu import MetalOnCpu  # noqa: E402
from metal_on_cpu.library import ShaderError, compiled, folder  # noqa: E402
from metal_on_cpu.mutants import Mutant, mutants  # noqa: E402

SHIM = Path(__file__).parent
SURVIVORS = SHIM / "survivors.txt"
PARITY = TESTS / "parity" / "shaders"
EDGEQUANT = TESTS.parent / "edgequant"
ENOUGH = 0.95  # of them must be caught
PATIENCE = 60  # seconds after which a quick test is thought to run for ever


class Fate(IntEnum):
    """What became of a mutant; also the exit status of its process."""

    SURVIVED = 0
    CAUGHT = 1
    SAME = 3


@dataclass(frozen=True)
class Task:
    """A mutant of a kernel, and the tests it meets: (seconds, item), the quickest first."""

    kernel: str
    mutant: Mutant
    tests: Sequence[tuple[float, pytest.Item]]

    @property
    def name(self) -> str:
        """What it is, in a line."""
        return f"{self.kernel}: {self.mutant.name}"

    @property
    def key(self) -> str:
        """What was caught once is caught again where this is the same."""
        files = sorted({item.path for _, item in self.tests})
        source = METAL.find(shipped("shaders"), self.kernel).path
        return f"{_contents((source, *files))} {self.name}"


class Mutation:
    """A pytest plugin that runs the collected tests on mutants instead of once."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.remembered = folder() / f"caught-{_contents(_helpers())}.txt"
        self.fates: dict[tuple[str, str], Fate] = {}
        self._tests: dict[str, list[tuple[float, pytest.Item]]] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Learn which test runs which kernel; then try mutants."""
        files = sorted({item.path for item in session.items})
        kept = folder() / f"tests-{_contents((*files, *_helpers(), *EDGEQUANT.rglob('*.py')))}.json"
        if not kept.exists():
            kept.write_text(json.dumps(self._learn(session.items)))
        items = {item.nodeid: item for item in session.items}
        for name, seconds, kernels in json.loads(kept.read_text()):
            for kernel in kernels:
                self._tests.setdefault(kernel, []).append((seconds, items[name]))
        tasks = list(self._tasks())
        if tasks and self._control(session, tasks[0]) is not Fate.SURVIVED:
            sys.exit(f"{tasks[0].kernel}: its tests fail on their own without any change.")
        print(f"{len(tasks)} mutants of {len({t.kernel for t in tasks})} kernels", flush=True)
        running: dict[int, Task] = {}
        self.remembered.touch()
        before = set(self.remembered.read_text().splitlines())
        for number, task in enumerate(tasks):
            if task.key in before:
                self.fates[task.kernel, task.mutant.name] = Fate.CAUGHT
                continue
            if len(running) == self.options.jobs:
                self._reap(running)
            pid = os.fork()
            if pid == 0:
                os._exit(self._try(session, task))
            running[pid] = task
            if number % 50 == 49:
                print(f"{number + 1} tried, {time.process_time():.0f} s", flush=True)
        while running:
            self._reap(running)
        return True

    def _learn(self, items: Sequence[pytest.Item]) -> list[tuple[str, float, list[str]]]:
        """Run all tests; return what each took and which kernels it ran."""
        seen: set[str] = set()
        learned, submit = [], MetalOnCpu.submit

        def watched(gpu: MetalOnCpu, recording: int) -> int:
            seen.update(d.kernel for d in gpu._recordings[recording][0])
            return submit(gpu, recording)

        MetalOnCpu.submit = watched  # type: ignore[method-assign]
        for item, after in zip(items, [*items[1:], items[0]], strict=True):
            seen.clear()
            start = time.monotonic()
            if any(report.failed for report in runtestprotocol(item, nextitem=after, log=False)):
                sys.exit(f"{item.nodeid} fails without any change.")
            learned.append((item.nodeid, time.monotonic() - start, sorted(seen)))
        MetalOnCpu.submit = submit  # type: ignore[method-assign]
        return learned

    def _tasks(self) -> Iterator[Task]:
        """Yield what is to be tried."""
        met: set[str] = set()
        for kernel in sorted(self._tests, key=_digest):  # families mixed, the same every time
            if not fnmatch(kernel, self.options.kernels):
                continue
            tests = sorted(self._tests[kernel], key=lambda test: test[0])
            source = METAL.find(shipped("shaders"), kernel).path.read_text()
            for mutant in mutants(source):
                if _digest(mutant.name) >= self.options.share or mutant.name in met:
                    continue
                if not self.options.every:
                    met.add(mutant.name)
                yield Task(kernel, mutant, tests)

    def _try(self, session: pytest.Session, task: Task) -> Fate:
        source = METAL.find(shipped("shaders"), task.kernel).path.read_text()
        try:
            (mine, _), (right, _) = (
                compiled(text, sanitize=True) for text in (task.mutant.source, source)
            )
        except ShaderError:
            return Fate.CAUGHT
        if mine.read_bytes() == right.read_bytes():
            return Fate.SAME
        MetalOnCpu.changed[task.kernel] = task.mutant.source
        return self._meet(session, task)

    def _control(self, session: pytest.Session, task: Task) -> Fate:
        """Let a kernel meet its tests as it is, in a process of its own."""
        pid = os.fork()
        if pid == 0:
            os._exit(self._meet(session, task))
        return Fate(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    @staticmethod
    def _meet(session: pytest.Session, task: Task) -> Fate:
        for seconds, item in task.tests:
            signal.alarm(PATIENCE + int(10 * seconds))  # ends this process
            session._setupstate.teardown_exact(item)
            if any(report.failed for report in runtestprotocol(item, nextitem=item, log=False)):
                return Fate.CAUGHT
        return Fate.SURVIVED

    def _reap(self, running: dict[int, Task]) -> None:
        pid, status = os.wait()
        task = running.pop(pid)
        code = os.waitstatus_to_exitcode(status)
        fate = Fate(code) if code in (Fate.SURVIVED, Fate.SAME) else Fate.CAUGHT
        self.fates[task.kernel, task.mutant.name] = fate
        if fate is Fate.CAUGHT:
            with self.remembered.open("a") as file:
                file.write(f"{task.key}\n")
        if fate is Fate.SURVIVED:
            print(f"survived {task.kernel}:{task.mutant.line} {task.mutant.name}", flush=True)


def _helpers() -> list[Path]:
    """What all tests depend on: the shim, and what they share."""
    shim = (*SHIM.glob("*.cpp"), *SHIM.glob("include/*"), SHIM / "gpu.py", SHIM / "translate.py")
    return sorted((*TESTS.glob("*.py"), *PARITY.glob("conftest.py"), *shim))


def _contents(files: Iterable[Path]) -> str:
    """Return a digest of what files hold."""
    together = hashlib.sha256()
    for path in files:
        together.update(path.read_bytes())
    return together.hexdigest()[:16]


def _digest(text: str) -> float:
    """Return a number from 0 to 1 that is the text's."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 2**32


def listed() -> set[str]:
    """Return the names of the survivors that survivors.txt lists."""
    return {line for line in SURVIVORS.read_text().splitlines() if line[:1] not in ("", "#")}


def report(fates: Mapping[tuple[str, str], Fate]) -> str | None:
    """Print what was caught; return what is wrong with it."""
    kinds = Counter[tuple[str, Fate]]()
    for (_, name), fate in fates.items():
        for kind in (name.partition(" ")[0], "all"):
            kinds[kind, fate] += 1
    columns = (Fate.CAUGHT, Fate.SURVIVED, Fate.SAME)
    print(f"{'':8}" + "".join(f"{fate.name.lower():>10}" for fate in columns))
    for kind in ("barrier", "bound", "swap", "shift", "all"):
        print(f"{kind:8}" + "".join(f"{kinds[kind, fate]:10}" for fate in columns))
    caught, changed = kinds["all", Fate.CAUGHT], sum(kinds["all", fate] for fate in columns[:2])
    print(f"{caught} of {changed} are caught: {caught / max(1, changed):.1%}")
    survivors = {name for (_, name), fate in fates.items() if fate is Fate.SURVIVED}
    if new := survivors - listed():
        return "\n".join(("Survivors without a reason in survivors.txt:", *sorted(new)))
    if caught < ENOUGH * changed:
        return f"Fewer than {ENOUGH:.0%} are caught."
    return None


def mutate(options: argparse.Namespace) -> dict[tuple[str, str], Fate]:
    """Try mutants; return what became of each, by kernel and name."""
    plugin = Mutation(options)
    chosen: list[Any] = [*map(str, options.tests), "-m", "metal", "-q", "-s"]
    if pytest.main(chosen, plugins=[plugin]) not in (0, pytest.ExitCode.NO_TESTS_COLLECTED):
        sys.exit("the parity tests could not be run.")
    return plugin.fates


def main() -> None:
    """Try mutants and report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tests", nargs="*", type=Path, default=[PARITY], help="all of parity's")
    parser.add_argument("--kernels", default="*", help="a pattern of their names")
    parser.add_argument("--share", type=float, default=1.0, help="of the mutants, 0 to 1")
    parser.add_argument("--every", action="store_true", help="a change in every kernel it is in")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at once")
    wrong = report(mutate(parser.parse_args()))
    if wrong:
        sys.exit(wrong)


if __name__ == "__main__":
    main()
