"""Devices: where graphs run. `cpu` is the meaning; every other device is right when it agrees.

A device is a module of this package with `DEVICE = Entry(…)`; `open_device` finds them by scanning
the package, so a new one is a new file. A device's libraries load only when it is opened.
"""

import importlib
import pkgutil
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from edgequant.errors import DeviceError

if TYPE_CHECKING:  # drivers are started before NumPy is there
    from edgequant.device.listing import Listing
    from edgequant.device.protocol import Device

_DRIVERS = f"{__name__}.vulkan.hardware"  # what takes longest to start, and needs no NumPy for it
_opening: dict["Choice", "Future[Device]"] = {}  # by `wake`


@dataclass(frozen=True)
class Choice:
    """A device as it is asked for.

    Attributes:
        name: "auto", or a device's name with an optional ":index".
        cache: type of the KV cache, such as "q8_0"; None for the device's own choice.
        exact: keep the inputs of linear layers in float32.
    """

    name: str = "auto"
    cache: str | None = None
    exact: bool = False


@dataclass(frozen=True)
class Entry:
    """How a device presents itself before it is opened.

    Attributes:
        name: what `--device` says.
        rank: `auto` takes the lowest that is there.
        missing: returns why it cannot be used on this machine, or None if it can.
        open: makes the device; the first argument is what follows the colon ("1" of "vulkan:1"), or
            "". What it is asked beside the name was checked against this entry.
        observes: its programs are `Observer`s.
        caches: types of KV cache to choose from, if there is a choice.
        exact: it can keep the inputs of linear layers in float32.
        worthwhile: whether `auto` may take it, once nothing is missing.
        listed: the devices of this kind, one by one, if there can be several; else the one that
            `open` makes is all.
    """

    name: str
    rank: int
    missing: Callable[[], str | None]
    open: Callable[[str, Choice], "Device"]
    observes: bool = False
    caches: tuple[str, ...] = ()
    exact: bool = True
    worthwhile: Callable[[], bool] = lambda: True
    listed: Callable[[], Sequence["Listing"]] | None = None


@cache
def entries() -> tuple[Entry, ...]:
    """Return every device this version knows, best first, whether or not it is here."""
    found = []
    for module in pkgutil.iter_modules(__path__):
        entry = getattr(importlib.import_module(f"{__name__}.{module.name}"), "DEVICE", None)
        if isinstance(entry, Entry):
            found.append(entry)
    return tuple(sorted(found, key=lambda entry: entry.rank))


def open_device(wanted: str | Choice = "auto", *, observe: bool = False) -> "Device":
    """Open a device.

    Args:
        wanted: as given to `--device`, or all that can be asked.
        observe: the caller needs programs that are `Observer`s.

    Raises:
        DeviceError: unknown, not on this machine, or unable to do what is asked.
    """
    choice = Choice(wanted) if isinstance(wanted, str) else wanted
    ahead = None if observe else _opening.pop(choice, None)
    return _open(choice, observe=observe) if ahead is None else ahead.result()


def _open(choice: Choice, *, observe: bool) -> "Device":
    name, _, index = choice.name.partition(":")
    for entry in entries():
        if name == "auto":
            if _may_take(entry) and _lacks(entry, choice, observe=observe) is None:
                return entry.open(index, _finest(entry, choice) if observe else choice)
        elif name == entry.name:
            reason = entry.missing()
            if reason is not None:
                raise DeviceError(
                    f"{choice.name}: {reason}", hint="use --device auto, or --device cpu."
                )
            lack = _lacks(entry, choice, observe=observe)
            if lack is not None:
                raise DeviceError(f"{choice.name}: {lack[0]}", hint=lack[1])
            return entry.open(index, _finest(entry, choice) if observe else choice)
    if name == "auto":
        raise DeviceError(
            f"auto: no device here has a KV cache in {choice.cache}.",
            hint="leave out --cache-type.",
        )
    known = ", ".join(("auto", *(entry.name for entry in entries())))
    raise DeviceError(f"{choice.name}: no such device.", hint=f"use one of {known}.")


def wake(wanted: str) -> None:
    """Open a device on a thread, since drivers take as long to start as Python to import.

    The next `open_device` for the same gets it, or the error.

    Args:
        wanted: as given to `--device`.
    """
    choice, beside = Choice(wanted), ThreadPoolExecutor(1)
    if sys.platform != "darwin":  # where another device is the best
        beside.submit(lambda: importlib.import_module(_DRIVERS).found())
    _opening[choice] = beside.submit(_open, choice, observe=False)
    beside.shutdown(wait=False)


def list_devices() -> tuple[tuple["Listing", bool], ...]:
    """Return every device of this machine, best first, and whether `auto` takes it."""
    from edgequant.device.listing import Listing

    listings: list[tuple[Listing, bool]] = []
    for entry in entries():
        taken = not any(auto for _, auto in listings) and _may_take(entry)
        reason = entry.missing()
        if entry.listed is not None and (several := entry.listed()):
            first = next((one for one in several if one.missing is None), None)
            listings += [(one, taken and one is first) for one in several]
        elif reason is not None:
            listings.append((Listing(entry.name, "", missing=reason), False))
        else:
            device = entry.open("", Choice(entry.name))
            listings.append((Listing(entry.name, device.description), taken))
    return tuple(listings)


def _may_take(entry: Entry) -> bool:
    return entry.missing() is None and entry.worthwhile()


def _finest(entry: Entry, choice: Choice) -> Choice:
    """Choose a cache in float32 if there is one: half precision is seen in an importance matrix."""
    finer = choice.cache is None and "f32" in entry.caches
    return replace(choice, cache="f32") if finer else choice


def _lacks(entry: Entry, choice: Choice, *, observe: bool) -> tuple[str, str] | None:
    """Return what of the choice a device cannot do, and a hint."""
    if observe and not entry.observes:
        return (
            "this device cannot observe the inputs of linear layers.",
            "use --device cpu for the importance matrix.",
        )
    if choice.cache is not None and choice.cache not in entry.caches:
        offered = ", ".join(entry.caches) or "its own alone"
        return (
            f"this device has no KV cache in {choice.cache}; it offers {offered}.",
            "leave out --cache-type, or use another --device.",
        )
    if choice.exact and not entry.exact:
        return (
            "this device rounds the inputs of linear layers.",
            "leave out --exact, or use another --device.",
        )
    return None
