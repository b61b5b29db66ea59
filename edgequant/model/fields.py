"""Typed access to a mapping that a user's file wrote, remembering what was asked for.

Used for config.json and for GGUF keys alike. It knows no model: what a key means, and which ranges
make sense, is said by the caller. What was never asked for can be refused at the end.
"""

from collections.abc import Collection, Mapping
from typing import NoReturn

from edgequant.errors import EdgequantError, UnsupportedError


class Fields:
    """The values of one file; `where` names it in errors, `error` is whose fault they are."""

    def __init__(
        self, values: Mapping[str, object], where: str, error: type[EdgequantError], hint: str
    ) -> None:
        self.where = where
        self._values = values
        self._error = error
        self._hint = hint
        self._asked: set[str] = set()

    def refuse(self, what: str) -> NoReturn:
        """Raise the file's error."""
        raise self._error(f"{self.where}: {what}", hint=self._hint)

    def value(self, key: str) -> object:
        """Return a value as it is, None if the key is absent."""
        self._asked.add(key)
        return self._values.get(key)

    def has(self, key: str) -> bool:
        """Tell whether the key is there, even if it says null."""
        return key in self._values

    def inside(self, values: Mapping[str, object], key: str) -> "Fields":
        """Return the fields of an object within the file."""
        return Fields(values, f"{self.where}: {key}", self._error, self._hint)

    def integer(self, key: str, low: int, high: int, default: int | None = None) -> int:
        """Return a whole number in low..high; a list counts if all its entries are the same."""
        value = self.value(key)
        if isinstance(value, list) and value and all(item == value[0] for item in value):
            value = value[0]
        if value is None:
            if default is None:
                self.refuse(f"{key} is missing.")
            value = default
        if isinstance(value, bool) or not isinstance(value, int):
            self.refuse(f"{key} is {_shown(value)}; a whole number was expected.")
        if not low <= value <= high:
            self.refuse(f"{key} is {_cut(f'{value:,}')}; {low:,} to {high:,} are possible.")
        return value

    def number(self, key: str, low: float, high: float, default: float | None = None) -> float:
        """Return a finite number in low..high."""
        value = self.value(key)
        if value is None:
            if default is None:
                self.refuse(f"{key} is missing.")
            value = default
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse(f"{key} is {_shown(value)}; a number was expected.")
        if not low <= value <= high:  # NaN too
            self.refuse(f"{key} is {_shown(value)}; {low:g} to {high:g} are possible.")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        """Return a boolean; null counts as absent."""
        value = self.value(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.refuse(f"{key} is {_shown(value)}; true or false was expected.")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """Return a string."""
        value = self.value(key)
        if value is None:
            if default is None:
                self.refuse(f"{key} is missing.")
            value = default
        if not isinstance(value, str):
            self.refuse(f"{key} is {_shown(value)}; a text was expected.")
        return value

    def refuse_unknown(self, inert: Collection[str], prefix: str = "") -> None:
        """Refuse keys nobody asked for, unless they are known to be inert, or say nothing.

        Raises:
            UnsupportedError: naming the key; it may change the arithmetic.
        """
        for key in self._values:  # a value may be large, and decoded when it is asked for
            if not key.startswith(prefix) or key in self._asked:
                continue
            if key.removeprefix(prefix) in inert:
                continue
            value = self._values[key]
            if not _says_something(value):
                continue
            raise UnsupportedError(
                f"{self.where}: {key} is {_shown(value)}, which edgequant does not understand; "
                "it may change what the model computes.",
                hint="use a model without it, or remove the key if you know that it does nothing.",
            )


def _says_something(value: object) -> bool:
    return bool(value) if isinstance(value, int | float | str | list | dict) else value is not None


def _shown(value: object) -> str:
    return _cut(repr(value))


def _cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
