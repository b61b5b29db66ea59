"""Devices: where graphs run. `cpu` is the meaning; every other device is right when it agrees.

A device is a module of this package with `DEVICE = Entry(…)`; `open_device` finds them by scanning
the package, so a new one is a new file. A device's libraries load only when it is opened.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from edgequant.device.protocol import Device
from edgequant.errors import DeviceError


@dataclass(frozen=True)
class Entry:
    """How a device presents itself before it is opened.

    Attributes:
        name: what `--device` says.
        rank: `auto` takes the lowest that is there.
        missing: returns why it cannot be used on this machine, or None if it can.
        open: makes the device; the argument is what follows the colon ("1" of "vulkan:1"), or "".
        observes: its programs are `Observer`s.
        worthwhile: whether `auto` may take it, once nothing is missing.
    """

    name: str
    rank: int
    missing: Callable[[], str | None]
    open: Callable[[str], Device]
    observes: bool = False
    worthwhile: Callable[[], bool] = lambda: True


@cache
def entries() -> tuple[Entry, ...]:
    """Return every device this version knows, best first, whether or not it is here."""
    found = []
    for module in pkgutil.iter_modules(__path__):
        entry = getattr(importlib.import_module(f"{__name__}.{module.name}"), "DEVICE", None)
        if isinstance(entry, Entry):
            found.append(entry)
    return tuple(sorted(found, key=lambda entry: entry.rank))


def _may_take(entry: Entry) -> bool:
    return entry.missing() is None and entry.worthwhile()


def open_device(name: str = "auto", *, observe: bool = False) -> Device:
    """Open a device by the name given to `--device`.

    Args:
        name: "auto", or a device's name with an optional ":index".
        observe: the caller needs programs that are `Observer`s.

    Raises:
        DeviceError: unknown, not on this machine, or unable to observe.
    """
    wanted, _, index = name.partition(":")
    for entry in entries():
        if wanted == "auto" and (observe > entry.observes or not _may_take(entry)):
            continue
        if wanted not in ("auto", entry.name):
            continue
        reason = entry.missing()
        if reason is not None:
            raise DeviceError(f"{name}: {reason}", hint="use --device auto, or --device cpu.")
        if observe and not entry.observes:
            raise DeviceError(
                f"{name}: this device cannot observe the inputs of linear layers.",
                hint="use --device cpu for the importance matrix.",
            )
        return entry.open(index)
    known = ", ".join(("auto", *(entry.name for entry in entries())))
    raise DeviceError(f"{name}: no such device.", hint=f"use one of {known}.")
