"""The pretend runtime: implements `Runtime` of `edgequant.device.metal.objc`."""

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from edgequant.device.metal.objc import SELECTORS, Size
from pretend_metal.device import Device, Machine
from pretend_metal.executor import Late
from pretend_metal.foundation import Class, CompileOptions, ConstantValues, Error, StringClass
from pretend_metal.hazards import Declared
from pretend_metal.kernels import Compile
from pretend_metal.kinds import SIZE
from pretend_metal.limits import Limits
from pretend_metal.objects import Heap, Message, Thing, answer
from pretend_metal.refused import Refused


class PretendMetal:
    """Objects of the pretend device, and how messages reach them.

    Args:
        compile_: makes MSL run; `metal_on_cpu.library.compile_library` for real.
        limits: of the device.
        present: whether there is a device.
        executor: of command buffers.

    Attributes:
        sent: how often each selector was sent.
        declared: what dispatches read and write, if a test tells.
    """

    def __init__(
        self,
        compile_: Compile,
        *,
        limits: Limits | None = None,
        present: bool = True,
        executor: Late | None = None,
    ) -> None:
        self.heap = Heap()
        self.sent: Counter[str] = Counter()
        self.declared = Declared()
        self.executor = executor or Late()
        self.limits = limits or Limits()
        machine = Machine(self.limits, compile_, self.executor, self.declared)
        self._device = Device(self.heap, machine) if present else None
        self._classes: dict[str, Thing] = {
            "NSString": StringClass(self.heap),
            "MTLCompileOptions": Class(self.heap, CompileOptions),
            "MTLFunctionConstantValues": Class(self.heap, ConstantValues),
        }
        self._permanent = set(self.heap.living())
        self._handles: dict[str, int] = {}
        self._numbers = count(1)

    def default_device(self) -> int | None:
        """Return the device, retained."""
        return None if self._device is None else self._device.retain().id

    def class_named(self, name: str) -> int | None:
        """Return a class; nil for one that is not here."""
        return self._classes[name].id if name in self._classes else None

    def bind(self, selector: str) -> tuple[Callable[..., Any], int]:
        """Return what sends a message, and its handle."""
        asked = known().get(selector)
        if asked is None:
            raise Refused(f"no class has the selector {selector}")
        if SELECTORS.get(selector) != asked.letters:
            raise Refused(f"{selector} is {asked.letters}, not {SELECTORS.get(selector)}")
        handle = self._handles.setdefault(selector, next(self._numbers))

        def send(receiver: int | None, sent: int, *given: Any) -> Any:
            self.sent[selector] += 1
            if sent != handle:
                raise Refused(f"the prototype of {selector} is used for another selector")
            if not receiver:
                raise Refused(f"{selector} was sent to nil")
            result = answer(self.heap, asked, self.heap.find(receiver), given)
            return Size(*result) if asked.result is SIZE else result

        return send, handle

    def push_pool(self) -> int:
        """Begin an autorelease pool on this thread."""
        return self.heap.push()

    def pop_pool(self, pool: int) -> None:
        """End the innermost pool of this thread."""
        self.heap.pop(pool)

    def fail_next(self, code: int, description: str, after: int = 0) -> None:
        """Let a command buffer fail with an error, after some that do not."""
        self.executor.faults.extend([None] * after)
        self.executor.faults.append(lambda: Error(self.heap, code, description))

    def alive(self) -> list[str]:
        """Return what was made and not released, and the device if it is still held."""
        made = [repr(thing) for thing in self.heap.living() if thing not in self._permanent]
        held = [repr(thing) for thing in self._permanent if thing.references > 1]
        return made + held


def known() -> dict[str, Message]:
    """Return the prototype of every selector that some class answers."""
    found: dict[str, Message] = {}
    for kind in _kinds(Thing):
        for selector, (asked, _) in kind.messages.items():
            if found.setdefault(selector, asked).letters != asked.letters:
                raise ValueError(f"{selector} has two prototypes")
    return found


def _kinds(kind: type[Thing]) -> Iterable[type[Thing]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _kinds(below)
