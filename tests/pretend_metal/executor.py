"""When committed command buffers run: as late as can be, or on a thread, each for a set time."""

import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Condition, Thread

from pretend_metal.commands import CommandBuffer
from pretend_metal.foundation import Error


class Late:
    """Runs nothing until someone waits for it: who reads without waiting sees what was before.

    Dispatches that no barrier separates run last to first, since Metal promises no order.

    Attributes:
        order: of the threads of a threadgroup; see `metal_on_cpu.library`.
        faults: make the errors of the next command buffers, which then run nothing; None lets one
            run.
        refusals: what was found while kernels ran, and not told yet.
        completed: how many command buffers ever were.
    """

    def __init__(self, order: int = 0) -> None:
        self.order = order
        self.faults: deque[Callable[[], Error] | None] = deque()
        self.refusals: deque[BaseException] = deque()
        self.completed = 0
        self._committed: deque[CommandBuffer] = deque()

    def commit(self, commands: CommandBuffer) -> None:
        """Keep it for later."""
        self._committed.append(commands)

    def finish(self, commands: CommandBuffer) -> None:
        """Run it, and those before."""
        while not commands.has_ended:
            self._execute(self._committed.popleft())
        if self.refusals:
            raise self.refusals.popleft()

    def make_room(self) -> None:
        """Run the oldest."""
        self._execute(self._committed.popleft())

    def close(self) -> None:
        """Run all."""
        while self._committed:
            self.make_room()

    def _execute(self, commands: CommandBuffer) -> None:
        fault = self.faults.popleft() if self.faults else None
        failure = fault() if fault else None
        commands.started = time.perf_counter()
        try:
            if failure is None:
                self._run(commands)
            commands.ended = time.perf_counter()
            self.completed += 1
            commands.complete(failure)
        except BaseException as refused:  # told to whoever waits, as this may be another thread
            self.refusals.append(refused)
            commands.complete(failure)

    def _run(self, commands: CommandBuffer) -> None:
        for segment in commands.segments:
            for run in reversed(segment):
                run.pipeline.made.dispatch(
                    run.pipeline.entry,
                    run.arguments,
                    run.groups,
                    run.threads,
                    simd=run.pipeline.limits.simd,
                    order=self.order,
                    memory=run.memory,
                )


class Threaded(Late):
    """Runs command buffers on a thread, in order, each for `delay` seconds at least."""

    def __init__(self, delay: float, order: int = 0) -> None:
        super().__init__(order)
        self.delay = delay
        self._queue: SimpleQueue[CommandBuffer | None] = SimpleQueue()
        self._changed = Condition()
        self._thread = Thread(target=self._work, daemon=True)
        self._thread.start()

    def commit(self, commands: CommandBuffer) -> None:
        """Hand it to the thread."""
        self._queue.put(commands)

    def finish(self, commands: CommandBuffer) -> None:
        """Wait for the thread."""
        with self._changed:
            self._changed.wait_for(lambda: commands.has_ended)
        super().finish(commands)

    def make_room(self) -> None:
        """Wait for the next to complete."""
        before = self.completed
        with self._changed:
            self._changed.wait_for(lambda: self.completed > before)

    def close(self) -> None:
        """Let the thread end after what was committed."""
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        for commands in iter(self._queue.get, None):
            self._execute(commands)
            with self._changed:
                self._changed.notify_all()

    def _run(self, commands: CommandBuffer) -> None:
        until = time.perf_counter() + self.delay
        super()._run(commands)
        time.sleep(max(0.0, until - time.perf_counter()))
