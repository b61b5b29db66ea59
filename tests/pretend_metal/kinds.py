"""Kinds of arguments and results of messages: how C passes them, and what Python may give."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from struct import unpack
from typing import Any

from pretend_metal.refused import Refused


@dataclass(frozen=True)
class Kind:
    """A C type.

    Attributes:
        letter: by which the host's table of selectors means it.
        taken: checks what was given for it, and returns what methods are called with.
    """

    letter: str
    taken: Callable[[Any], Any]


def _integer(low: int, high: int) -> Callable[[Any], int]:
    def taken(given: Any) -> int:
        if not isinstance(given, int) or not low <= given < high:
            raise Refused(f"{given!r} is not an integer from {low} to {high - 1}")
        return given

    return taken


def _address(given: Any) -> int:
    """The address that C would receive; 0 for nil."""
    if isinstance(given, int):
        return _integer(0, 1 << 64)(given)
    if isinstance(given, float | str):
        raise Refused(f"{given!r} is no pointer")
    try:
        return ctypes.cast(given, ctypes.c_void_p).value or 0
    except ctypes.ArgumentError:
        raise Refused(f"{given!r} is no pointer") from None


def _text(given: Any) -> bytes:
    if not isinstance(given, bytes):
        raise Refused(f"{given!r} is not a C string")
    return given


def _truth(given: Any) -> bool:
    if given not in (False, True):
        raise Refused(f"{given!r} is neither YES nor NO")
    return bool(given)


def _double(given: Any) -> float:
    if not isinstance(given, int | float):
        raise Refused(f"{given!r} is not a number")
    return float(given)


def _size(given: Any) -> tuple[int, int, int]:
    fields = getattr(given, "_fields_", ())
    if [kind for _, kind in fields] != [ctypes.c_uint64] * 3:
        raise Refused(f"{given!r} is not an MTLSize")
    return unpack("<3Q", bytes(given))


ID = Kind("p", _address)  # then looked up among the objects
POINTER = Kind("p", _address)
STRING = Kind("s", _text)
UNSIGNED = Kind("U", _integer(0, 1 << 64))
SIGNED = Kind("q", _integer(-(1 << 63), 1 << 63))
BOOL = Kind("b", _truth)
DOUBLE = Kind("d", _double)
SIZE = Kind("S", _size)
