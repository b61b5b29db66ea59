"""How a stage says how far it is, without knowing who listens.

A stage takes a `Progress` and calls it; the CLI passes one that draws on stderr, tests and library
callers pass `SILENT`. Stages never print.
"""

from typing import Protocol


class Progress(Protocol):
    """One task at a time: `begin`, any number of `advance`, `end`."""

    def begin(self, label: str, total: int, unit: str) -> None:
        """Start a task of `total` units ("bytes", "tokens", …); ends one still open."""

    def advance(self, amount: int, note: str = "") -> None:
        """Report `amount` more units done; `note` is a short live text, such as a tensor's name."""

    def end(self) -> None:
        """Finish the task, also when it was cut short."""

    def say(self, text: str) -> None:
        """Show a line that stays, such as a warning that is also in the report."""


class _Silent:
    def begin(self, label: str, total: int, unit: str) -> None:
        """Ignore."""

    def advance(self, amount: int, note: str = "") -> None:
        """Ignore."""

    def end(self) -> None:
        """Ignore."""

    def say(self, text: str) -> None:
        """Ignore."""


SILENT: Progress = _Silent()
