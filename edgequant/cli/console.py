"""What is drawn on a terminal: consoles, and the progress bar."""

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from edgequant.cli.words import size, visible


class Bar:
    """A rich progress bar on stderr; quiet when stderr is not a terminal."""

    def __init__(self) -> None:
        self._console = console = make_console(stderr=True)
        console.width -= 3  # so that the terminal's "^C" stays on the bar's line, and goes with it
        self._bars = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(),
            TextColumn("{task.percentage:3.0f}%"), TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(), TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", markup=False), console=console, transient=True,
        )  # fmt: skip
        self._task: TaskID | None = None
        self._unit = ""

    def begin(self, label: str, total: int, unit: str) -> None:
        """Start a bar, on a terminal."""
        self.end()
        self._unit = unit
        if self._console.is_terminal:
            self._bars.start()
            self._task = self._bars.add_task(label, total=total, note="", rate="")

    def advance(self, amount: int, note: str = "") -> None:
        """Move it on."""
        if self._task is not None:
            task = self._bars.tasks[0]
            rate = _rate(task.completed + amount, task.elapsed or 0.0, self._unit)
            self._bars.update(self._task, advance=amount, note=visible(note), rate=rate)

    def end(self) -> None:
        """Take it away."""
        if self._task is not None:
            self._bars.remove_task(self._task)
            self._bars.stop()
            self._task = None

    def say(self, text: str) -> None:
        """Print a line above it."""
        self._console.print(visible(text), soft_wrap=True)


def _rate(done: float, seconds: float, unit: str) -> str:
    """Say the mean speed so far, which is what a report says in the end."""
    if not seconds:
        return ""
    speed = done / seconds
    return f"{size(round(speed))}/s" if unit == "bytes" else f"{speed:,.1f} {unit}/s"


def table_console() -> Console:
    """Return the console for results, on stdout; a pipe has no right edge."""
    console = make_console()
    if not console.is_terminal:
        console.width = 10_000
    return console


def make_console(*, stderr: bool = False) -> Console:
    """Return a console that shows texts as they are: files are named "[v2].gguf", too."""
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)
