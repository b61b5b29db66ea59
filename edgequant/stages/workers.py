"""Processes that share out work on a model's weights, and give back results in order.

Why not threads: they work at once only while NumPy computes without the GIL, and here a call is 10
to 100 µs, less than a thread needs to wake up and take it (50 µs on a virtual machine). Two threads
took as long as one, or longer; two processes take half as long.

A worker gets pickled work on its stdin and pickles results to its stdout. A weight travels as its
place in its file, which the worker maps itself; rows and arrays travel whole. Workers keep nothing,
so they may be killed at any time, and end by themselves when their stdin does, as when this process
is killed. Ctrl-C does not reach them: they are a process group of their own.
"""

import os
import pickle
import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from itertools import cycle
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import IO, Any, Self, TypeVar

import numpy as np

from edgequant.errors import DeviceError

MOST = 12  # processes: each takes 18 MB and what its work needs, and all shall stay below 400 MB
AHEAD = 3  # items given to each worker before the first result is awaited
PIPE_NBYTES = 1 << 20  # where the system allows: results wait in it while others are awaited

T = TypeVar("T")
R = TypeVar("R")


class Workers:
    """Processes; a context manager, which starts them, and ends them.

    They take 0.15 s to be ready, which the caller may use.

    Args:
        count: how many may work at once, at most `MOST` do; 1 works in this process.
    """

    def __init__(self, count: int) -> None:
        self.count = min(count, MOST)
        self._processes: list[_Process] = []

    def __enter__(self) -> Self:
        if self.count > 1:
            self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the processes, in whatever they are doing."""
        while self._processes:
            self._processes.pop().kill()

    def in_order(self, work: Callable[[T], R], items: Iterable[T]) -> Generator[tuple[T, R]]:
        """Work on items and yield (item, result) in their order, few ahead of the reader.

        Args:
            work: a function of a module, or a `partial` of one.
            items: that can be pickled, as can the results.

        Raises:
            DeviceError: a process was killed from outside.
            Exception: what the work on an item raised, in that item's turn.
        """
        if self.count == 1:
            _keep_memory()
            for item in items:
                yield item, work(item)
            return
        ahead: deque[tuple[T, _Process]] = deque()
        self._start()
        try:
            for worker, item in zip(cycle(self._processes), items, strict=False):
                worker.send((work, item))
                ahead.append((item, worker))
                if len(ahead) > AHEAD * self.count:
                    yield _finished(ahead.popleft())
            while ahead:
                yield _finished(ahead.popleft())
        except BaseException:
            self.close()  # some hold results that nobody will ask for
            raise

    def _start(self) -> None:
        while len(self._processes) < self.count:
            self._processes.append(_Process())


def _finished(pair: tuple[T, "_Process"]) -> tuple[T, Any]:
    item, worker = pair
    return item, worker.receive()


class _Process:
    """One worker, from outside."""

    def __init__(self) -> None:
        start = "from edgequant.stages.workers import serve; serve()"
        self._popen = subprocess.Popen(
            [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {start}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # it would start one a processor
            process_group=0,
        )
        self._inbox, self._outbox = _open(self._popen.stdin), _open(self._popen.stdout)

    def send(self, job: object) -> None:
        """Give it something to do; it takes any number of jobs at once."""
        with suppress(BrokenPipeError):  # it has ended, as `receive` will say
            pickle.dump(job, self._inbox, pickle.HIGHEST_PROTOCOL)
            self._inbox.flush()

    def receive(self) -> Any:
        """Wait for the result of the earliest job; raises what the work raised."""
        try:
            done, result = pickle.load(self._outbox)
        except (EOFError, pickle.UnpicklingError) as error:
            raise DeviceError(
                f"process {self._popen.pid}: ended at its work, with status {self._popen.wait()}.",
                hint="if the machine ran out of memory, use fewer --threads; --resume goes on.",
            ) from error
        if not done:
            raise result
        return result

    def kill(self) -> None:
        self._popen.kill()
        self._popen.wait()
        self._outbox.close()
        with suppress(BrokenPipeError):  # it may hold a job that could not be sent
            self._inbox.close()


def _open(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    with suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_NBYTES)
    return pipe


def serve() -> None:
    """Be a worker: do what comes on stdin, in turn, until it ends."""
    outbox = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what may print does so where people look
    _keep_memory()
    jobs: SimpleQueue[tuple[Callable[[Any], Any], Any]] = SimpleQueue()
    Thread(target=_receive, args=(jobs,), daemon=True).start()
    with suppress(BrokenPipeError):
        while True:
            work, item = jobs.get()
            pickle.dump(_attempt(work, item), outbox, pickle.HIGHEST_PROTOCOL)
            outbox.flush()
    os._exit(0)


def _keep_memory() -> None:
    """Have freed memory kept for the next array.

    glibc gives it back to the system when the free end of the heap is above twice the largest block
    that was ever mapped by itself and freed, 256 KiB at first. Every piece of work would fault its
    pages in anew, which takes a fifth of the time. So a block is mapped and freed that nobody uses.
    """
    np.empty(1 << 24, np.uint8)


def _receive(jobs: "SimpleQueue[Any]") -> None:
    """Take jobs off stdin as they come, so that who sends them never waits."""
    inbox = os.fdopen(0, "rb")
    try:
        while True:
            jobs.put(pickle.load(inbox))
    except EOFError:
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def _attempt(work: Callable[[T], R], item: T) -> tuple[bool, R | Exception]:
    try:
        return True, work(item)
    except Exception as error:
        error.add_note("".join(traceback.format_exception(error)))
        return False, error
