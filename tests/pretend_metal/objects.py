"""Objects with reference counts, autorelease pools, and the messages they understand.

The rules of ownership are Objective-C's: what comes from `alloc`, `new…` or `copy` is the caller's
to release, anything else is in the innermost autorelease pool of the thread. An id is never used
twice, so that a message to what is gone is noticed. Stricter than Objective-C: nothing may be sent
to nil, and nothing autoreleased without a pool.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar, TypeVar

from pretend_metal.kinds import ID, Kind
from pretend_metal.refused import Refused

Method = TypeVar("Method", bound=Callable[..., Any])


@dataclass(frozen=True)
class Message:
    """One selector of a class, with its C prototype."""

    selector: str
    result: Kind | None
    arguments: tuple[Kind, ...]

    @property
    def letters(self) -> str:
        """The prototype, as the host's table of selectors writes it."""
        return "".join(kind.letter if kind else "v" for kind in (self.result, *self.arguments))


def message(
    selector: str, *arguments: Kind, returns: Kind | None = None
) -> Callable[[Method], Method]:
    """Mark a method as the answer to a selector."""
    if selector.count(":") != len(arguments):
        raise ValueError(f"{selector} has another number of arguments than {len(arguments)}")

    def mark(method: Method) -> Method:
        method.message = Message(selector, returns, arguments)  # type: ignore[attr-defined]
        return method

    return mark


class Thing:
    """An object of the pretend runtime.

    Attributes:
        references: to it; without any it is gone.
        refused: whether it refused something, so that what follows from that is no news.
    """

    messages: ClassVar[dict[str, tuple[Message, Callable[..., Any]]]] = {}

    def __init_subclass__(cls) -> None:
        cls.messages = {
            method.message.selector: (method.message, method)
            for kind in reversed(cls.__mro__)
            for method in vars(kind).values()
            if hasattr(method, "message")
        }

    def __init__(self, heap: "Heap") -> None:
        self.heap = heap
        self.references = 1
        self.refused = False
        self.id = heap.admit(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__} {self.id:#x}"

    def dealloc(self) -> None:
        """Give back what it holds; nobody refers to it any more."""

    def autoreleased(self) -> "Thing":
        """Leave its last reference to the innermost pool."""
        self.heap.autorelease(self)
        return self

    @message("retain", returns=ID)
    def retain(self) -> "Thing":
        with self.heap.lock:
            self.references += 1
        return self

    @message("release")
    def release(self) -> None:
        with self.heap.lock:
            self.references -= 1
            last = self.references == 0
        if last:
            self.heap.bury(self)
            self.dealloc()


class Heap:
    """All objects, alive or not.

    Attributes:
        lock: for changes: kernels may be compiled on threads.
        made: how many objects of each class ever were.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.made: Counter[str] = Counter()
        self._ids = count(0x1000, 16)
        self._living: dict[int, Thing] = {}
        self._buried: dict[int, str] = {}
        self._pools = threading.local()

    def admit(self, thing: Thing) -> int:
        """Give a new object its id."""
        with self.lock:
            number = next(self._ids)
            self._living[number] = thing
            self.made[type(thing).__name__] += 1
        return number

    def bury(self, thing: Thing) -> None:
        """Take an object's id away."""
        with self.lock:
            del self._living[thing.id]
            self._buried[thing.id] = repr(thing)

    def find(self, number: int) -> Thing:
        """Return the object of an id.

        Raises:
            Refused: there is none.
        """
        thing = self._living.get(number)
        if thing is None:
            what = self._buried.get(number)
            raise Refused(f"{what} was released" if what else f"{number:#x} is no object")
        return thing

    def living(self) -> Iterator[Thing]:
        """Return the objects that were not released."""
        return iter(list(self._living.values()))

    def push(self) -> int:
        """Open an autorelease pool on this thread; return what closes it."""
        self._stack().append([])
        return len(self._stack())

    def pop(self, token: int) -> None:
        """Close the innermost pool, and release what is in it."""
        if token != len(self._stack()) or not token:
            raise Refused(f"pool {token} is popped, but {len(self._stack())} are open")
        for thing in self._stack().pop():
            thing.release()

    def autorelease(self, thing: Thing) -> None:
        """Put an object into the innermost pool."""
        if not self._stack():
            raise Refused(f"{thing!r} is autoreleased without a pool: it would leak")
        self._stack()[-1].append(thing)

    def open_pools(self) -> int:
        """Return how many pools of this thread are open."""
        return len(self._stack())

    def _stack(self) -> list[list[Thing]]:
        if not hasattr(self._pools, "stack"):
            self._pools.stack = []
        stack: list[list[Thing]] = self._pools.stack
        return stack


def answer(heap: Heap, asked: Message, thing: Thing, given: tuple[Any, ...]) -> Any:
    """Send a message to an object and return its answer, as C would pass it."""
    method = type(thing).messages.get(asked.selector)
    if method is None:
        raise Refused(f"{thing!r} does not respond to {asked.selector}")
    if len(given) != len(asked.arguments):
        raise Refused(f"{asked.selector} was sent with {len(given)} arguments")
    taken = []
    for kind, argument in zip(asked.arguments, given, strict=True):
        try:
            value = kind.taken(argument)
            if kind is ID:
                value = heap.find(value) if value else None
            taken.append(value)
        except Refused as refused:
            raise Refused(f"{asked.selector} to {thing!r}: {refused}") from None
    try:
        result = method[1](thing, *taken)
    except Refused:
        thing.refused = True
        raise
    return result.id if isinstance(result, Thing) else result
