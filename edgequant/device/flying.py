"""Submissions on their way: they end in order, each when it is waited for, and all before it.

It knows tickets, and no API: who makes it gives the function that waits for one piece of work.
"""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import Generic, TypeVar

from edgequant.device.protocol import Ticket
from edgequant.errors import DeviceError

T = TypeVar("T")


class Flying(Generic[T]):
    """Submissions of one queue.

    Args:
        finish: waits for a piece of work and gives it back; returns its seconds, or what went
            wrong, so that the rest is given back too.
    """

    def __init__(self, finish: Callable[[T], float | DeviceError]) -> None:
        self._finish = finish
        self._numbers = count(1)
        self._flying: deque[tuple[Ticket, Sequence[T]]] = deque()
        self._seconds: dict[Ticket, list[float]] = {}

    def add(self, work: Sequence[T], *, timed: bool) -> Ticket:
        """Remember pieces of work that were started; `timed` if their seconds will be wanted."""
        ticket = next(self._numbers)
        self._flying.append((ticket, work))
        if timed:
            self._seconds[ticket] = []
        return ticket

    def wait(self, ticket: Ticket) -> Sequence[float]:
        """Wait until a submission is done; the seconds of its pieces, if it is timed, else empty.

        Raises:
            DeviceError: it, or one before it, failed.
        """
        self._reach(ticket)
        return self._seconds.pop(ticket, ())

    def wait_all(self) -> None:
        """Wait until everything is done."""
        if self._flying:
            self._reach(self._flying[-1][0])

    def _reach(self, ticket: Ticket) -> None:
        while self._flying and self._flying[0][0] <= ticket:
            number, work = self._flying.popleft()
            results = [self._finish(piece) for piece in work]
            for result in results:
                if isinstance(result, DeviceError):
                    raise result
                self._seconds.get(number, []).append(result)
