"""What every command shares: common options, the progress bar, and JSON output."""

import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from edgequant import progress
from edgequant.cli.words import size, visible
from edgequant.device import Choice

F = TypeVar("F", bound=Callable[..., Any])

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
          "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}  # fmt: skip


def parse_size(text: str) -> int:
    """Return a number of bytes: "2G" is 2 · 10^9, as in llama-gguf-split; "2GiB" is 2 · 2^30.

    Raises:
        BadParameter: it is not a size, or less than a byte.
    """
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)([KMGT]|[KMGT]B|[KMGT]iB|)", text, re.IGNORECASE)
    nbytes = 0
    if match is not None:
        unit = match[2].upper()
        nbytes = int(Decimal(match[1]) * _UNITS[unit if "I" in unit else unit[:1]])
    if nbytes == 0:
        raise click.BadParameter(f"{text!r} is not a size such as 500M, 2G or 1.5GiB.")
    return nbytes


# click would call a file that may not be read a wrong usage; stages say what is wrong with a file.
path = click.Path(path_type=Path, readable=False)


def shared(command: F) -> F:
    """Add --json, -q and --debug (which `main` reads) to a command."""
    command = click.option(
        "--debug", is_flag=True, expose_value=False, help="Show a traceback with an error."
    )(command)
    command = click.option("-q", "--quiet", is_flag=True, help="No progress and no table.")(command)
    return click.option(
        "--json", "as_json", is_flag=True, help="Print the report as JSON on stdout."
    )(command)


device = click.option(
    "--device",
    default="auto",
    show_default=True,
    metavar="D",
    help="auto, vulkan (vulkan:1 for the second GPU), llama (llama:N for N threads) or cpu.",
)


cache_type = click.option(
    "--cache-type", type=click.Choice(("f16", "q8_0", "f32")), metavar="T",
    help="Of the KV cache on a GPU: f16, q8_0 for half the memory, or f32; left out, f16.",
)  # fmt: skip


def engine(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --device, --cache-type and --exact, which the command gets as one `Choice`, `device`."""

    @wraps(command)
    def choose(*args: Any, device: str, cache_type: str | None, exact: bool, **others: Any) -> Any:
        return command(*args, device=Choice(device, cache_type, exact), **others)

    added = click.option(
        "--exact", is_flag=True,
        help="Keep the inputs of linear layers in float32, where a GPU would round them.",
    )(choose)  # fmt: skip
    return device(cache_type(added))


def scored_text(command: F) -> F:
    """Add -f, --ctx and --chunks: the text that `perplexity` and `compare` score."""
    command = click.option(
        "--chunks", type=click.IntRange(min=1), metavar="N",
        help="Chunks at most; left out, the whole text.",
    )(command)  # fmt: skip
    command = click.option(
        "--ctx", "context", type=click.IntRange(min=4), default=512, show_default=True,
        metavar="N", help="Tokens a chunk.",
    )(command)  # fmt: skip
    return click.option(
        "-f", "--file", "text", required=True, type=path, metavar="TEXT",
        help="A UTF-8 text file.",
    )(command)  # fmt: skip


force = click.option("--force", is_flag=True, help="Overwrite the output file.")


class _Bar:
    """A rich progress bar on stderr; quiet when stderr is not a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(),
            TextColumn("{task.percentage:3.0f}%"), TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(), TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", markup=False), console=console, transient=True,
        )  # fmt: skip
        self._task: TaskID | None = None
        self._unit = ""

    def begin(self, label: str, total: int, unit: str) -> None:
        self.end()
        self._unit = unit
        if self._console.is_terminal:
            self._bars.start()
            self._task = self._bars.add_task(label, total=total, note="", rate="")

    def advance(self, amount: int, note: str = "") -> None:
        if self._task is not None:
            task = self._bars.tasks[0]
            rate = _rate(task.completed + amount, task.elapsed or 0.0, self._unit)
            self._bars.update(self._task, advance=amount, note=visible(note), rate=rate)

    def end(self) -> None:
        if self._task is not None:
            self._bars.remove_task(self._task)
            self._bars.stop()
            self._task = None

    def say(self, text: str) -> None:
        self._console.print(visible(text), soft_wrap=True)


def _rate(done: float, seconds: float, unit: str) -> str:
    """Say the mean speed so far, which is what a report says in the end."""
    if not seconds:
        return ""
    speed = done / seconds
    return f"{size(round(speed))}/s" if unit == "bytes" else f"{speed:,.1f} {unit}/s"


@contextmanager
def shown_progress(quiet: bool) -> Iterator[progress.Progress]:
    """Give a stage something to report to; the bar is gone when the block ends, however it ends."""
    if quiet:
        yield progress.SILENT
        return
    console = _console(stderr=True)
    console.width -= 3  # so that the terminal's "^C" stays on the bar's line, and goes with it
    bar = _Bar(console)
    try:
        yield bar
    finally:
        bar.end()


def print_json(report: object) -> None:
    """Print one JSON object on stdout, in ASCII, so that no pipe's encoding loses a letter."""
    sys.stdout.write(as_json(report))


def as_json(report: object) -> str:
    """Return one JSON object in a line.

    Numbers that are not finite become null; bytes of names that are not UTF-8 become visible.
    """
    return json.dumps(_plain(report)) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return value


def table_console() -> Console:
    """Return the console for results, on stdout; a pipe has no right edge."""
    console = _console()
    if not console.is_terminal:
        console.width = 10_000
    return console


def _console(*, stderr: bool = False) -> Console:
    """Return a console that shows texts as they are: files are named "[v2].gguf", too."""
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)
