"""Kernels that were compiled: each once, several at the same time, ahead of their use if wished.

Drivers take 10 to 1000 ms for a kernel, and compile on the thread that asks. It knows no API: who
makes it gives the function that compiles one.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Generic, TypeVar

from edgequant.errors import DeviceError

Key = tuple[str, tuple[int, ...]]  # kernel, constants
T = TypeVar("T")


class Compiled(Generic[T]):
    """What was compiled, by key.

    Args:
        compile_one: compiles; may be called on several threads at once, and raises DeviceError.
    """

    def __init__(self, compile_one: Callable[[Key], T]) -> None:
        self._compile_one = compile_one
        self._kept: dict[Key, T] = {}
        self._ahead: Future[None] | None = None

    def prepare(self, wanted: Iterable[Key]) -> None:
        """Compile on a thread of its own; `compile` waits for it, and tries again what failed."""
        self._wait()
        pool = ThreadPoolExecutor(1)
        self._ahead = pool.submit(self._compile_all, tuple(wanted))
        pool.shutdown(wait=False)

    def compile(self, wanted: Iterable[Key]) -> None:
        """Compile what is not yet.

        Raises:
            DeviceError: one does not compile.
        """
        self._wait()
        self._compile_all(wanted)

    def __getitem__(self, key: Key) -> T:
        """Return what was compiled."""
        return self._kept[key]

    def take_all(self) -> tuple[T, ...]:
        """Return everything, and forget it."""
        self._wait()
        taken = tuple(self._kept.values())
        self._kept.clear()
        return taken

    def _wait(self) -> None:
        """Wait for what was prepared; what failed comes up again with whoever records it."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            with suppress(DeviceError):
                ahead.result()

    def _compile_all(self, wanted: Iterable[Key]) -> None:
        missing = [key for key in dict.fromkeys(wanted) if key not in self._kept]
        if not missing:
            return
        with ThreadPoolExecutor(min(len(missing), os.cpu_count() or 1)) as threads:
            deque(threads.map(self._keep, missing), maxlen=0)

    def _keep(self, key: Key) -> None:
        self._kept[key] = self._compile_one(key)
