"""The errors a user can cause, named by whose thing is wrong, since that is who must act.

Every one carries a `hint`: an imperative sentence that says what to do. The message has the form
`<object>: <what is wrong, with both numbers>`. Bugs of ours are ordinary exceptions and keep their
traceback; nothing a user or a user's file does may end in one.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any


class EdgequantError(Exception):
    """Something a user, or a user's file, caused."""

    def __init__(self, what: str, *, hint: str) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        """Say how to make it again: it may be raised in a process that works for this one."""
        return partial(type(self), hint=self.hint), (self.what,)

    def __str__(self) -> str:
        return f"{self.what}\nHint: {self.hint}"


class CheckpointError(EdgequantError):
    """A Hugging Face directory, shard, config or Hub id."""


class GGUFError(EdgequantError):
    """A GGUF file: broken, truncated, or not what its keys say."""


class UnsupportedError(EdgequantError):
    """An architecture, format, recipe, tokenizer or rope scaling that we do not know."""


class ImatrixError(EdgequantError):
    """An importance matrix that does not fit the model, or too little text to make one."""


class DeviceError(EdgequantError):
    """A device that is not there, runs out of memory, or cannot do what was asked."""


class FileError(EdgequantError):
    """A path: missing, unreadable, already there, not a place to write, or a full disk."""


class TextError(EdgequantError):
    """A prompt or text file: empty, too short for the context, or not UTF-8."""


def some(names: Sequence[str], most: int = 3) -> str:
    """Name a few and count the rest: no message lists a thousand tensors."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest:,} more" if rest > 0 else "")
