"""`edgequant inspect`: what a model file or importance matrix holds."""

from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from edgequant.cli import options
from edgequant.stages.inspect import ArrayReport, CoverageReport, InspectReport, inspect

_SHOWN_CHARACTERS = 80
_PIPED_WIDTH = 10_000  # tables take what they need; a pipe has no right edge


@click.command("inspect")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@options.shared
def command(file: Path, as_json: bool, quiet: bool) -> None:
    """List the keys and tensors of FILE, a GGUF model file or importance matrix.

    Shapes are (rows, columns); a row is contiguous on disk.
    """
    report = inspect(file)
    if as_json:
        options.print_json(_replace_surrogates(asdict(report)))
    elif not quiet:
        console = options.table_console()
        if not console.is_terminal:
            console.width = _PIPED_WIDTH
        _show(console, report)


def _show(console: Console, report: InspectReport) -> None:
    console.print(_visible(f"{report.path}: {report.summary}"))
    console.print(
        f"{report.bytes:,} bytes, GGUF version {report.version}, alignment {report.alignment}"
    )
    console.print(_table_of_keys(report.keys))
    if report.coverage is not None:
        _show_coverage(console, report.coverage)
    elif report.tensors:
        console.print(_table_of_tensors(report))
    if report.types:
        console.print(_table_of_types(report))


def _table(*columns: str) -> Table:
    """Make a table; names in lower case are of text, those in capitals of numbers."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        numeric = column.isupper()
        table.add_column(
            column.lower(), justify="right" if numeric else "left", no_wrap=numeric, overflow="fold"
        )
    return table


def _table_of_keys(keys: dict[str, object]) -> Table:
    table = _table("key", "value")
    for key, value in keys.items():
        table.add_row(_visible(key), _visible(_describe(value)))
    return table


def _table_of_tensors(report: InspectReport) -> Table:
    table = _table("tensor", "type", "shape", "BYTES")
    for tensor in report.tensors:
        table.add_row(_visible(tensor.name), tensor.type, str(tensor.shape), f"{tensor.bytes:,}")
    return table


def _table_of_types(report: InspectReport) -> Table:
    table = _table("type", "TENSORS", "PARAMETERS", "BYTES", "BITS PER WEIGHT")
    totals = [(t.type, t.tensors, t.parameters, t.bytes) for t in report.types]
    totals.append(("all", len(report.tensors), report.parameters, report.tensor_bytes))
    for name, tensors, parameters, nbytes in totals:
        bits = f"{8 * nbytes / parameters:.3f}"
        table.add_row(name, f"{tensors:,}", f"{parameters:,}", f"{nbytes:,}", bits)
    return table


def _show_coverage(console: Console, coverage: CoverageReport) -> None:
    chunks = "an unknown number of" if coverage.chunks is None else f"{coverage.chunks:,}"
    size = "" if coverage.chunk_size is None else f" of {coverage.chunk_size:,} tokens"
    datasets = ", ".join(map(str, coverage.datasets)) or "unnamed text"
    console.print(
        _visible(f"{len(coverage.entries):,} entries from {chunks} chunks{size} of {datasets}")
    )
    table = _table("entry", "COLUMNS", "MATRICES", "UNSEEN", "ZERO COLUMNS", "TOKENS")
    for e in coverage.entries:
        numbers = (e.columns, e.matrices, e.unseen, e.zeros, e.tokens)
        table.add_row(_visible(e.name), *(f"{number:,}" for number in numbers))
    console.print(table)


def _describe(value: object) -> str:
    if isinstance(value, ArrayReport):
        more = ", …" if value.length > len(value.first) else ""
        shown = ", ".join(map(_quote, value.first))
        return f"{value.length:,} x {value.type}: [{shown}{more}]"
    return _cut(value) if isinstance(value, str) else str(value)


def _quote(item: object) -> str:
    return repr(_cut(item)) if isinstance(item, str) else str(item)


def _cut(text: str) -> str:
    if len(text) <= _SHOWN_CHARACTERS:
        return text
    return f"{text[:_SHOWN_CHARACTERS]}… ({len(text):,} characters)"


def _visible(text: str) -> Text:
    """Escape what a terminal would obey or cannot show; never markup."""
    return Text(
        "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    )


def _replace_surrogates(value: object) -> object:
    """Escape bytes of vocabularies that are not UTF-8, which JSON cannot hold."""
    if isinstance(value, dict):
        return {key: _replace_surrogates(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_replace_surrogates(item) for item in value]
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return value
