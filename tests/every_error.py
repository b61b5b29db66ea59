"""Whether the tests met every error: where the package builds one of ours, some test got it.

A pytest plugin for complete runs. It counts what happens in this process, so a command that is run
as another does not count. Found by the syntax tree, so a new message without a test fails at once.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgequant import errors
from edgequant.errors import EdgequantError

PACKAGE = Path(errors.__file__).parent
OURS = {
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, EdgequantError)
} | {"self._error"}  # fmt: skip -- the last is how `model.fields` is told whose fault it is


def error_calls(path: Path) -> Iterator[ast.Call]:
    """Yield the places of a module that build an error of ours."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in OURS:
            yield node


class EveryError:
    """Remembers where errors were built, and fails the run if a place is missing."""

    def __init__(self) -> None:
        self._met: set[tuple[str, int]] = set()
        self._missing: list[str] = []
        build = EdgequantError.__init__

        def remember(error: EdgequantError, what: str, *, hint: str) -> None:
            caller = sys._getframe(1)
            self._met.add((caller.f_code.co_filename, caller.f_lineno))
            build(error, what, hint=hint)

        EdgequantError.__init__ = remember

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        for path in sorted(PACKAGE.rglob("*.py")):
            for call in error_calls(path):
                lines = range(call.lineno, (call.end_lineno or call.lineno) + 1)
                if not any((str(path), line) in self._met for line in lines):
                    self._missing.append(f"{path.relative_to(PACKAGE.parent)}:{call.lineno}")
        if self._missing and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for place in self._missing:
            terminalreporter.write_line(f"ERROR no test met the error built at {place}", red=True)
