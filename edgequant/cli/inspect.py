"""`edgequant inspect`: what a model file or importance matrix holds."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.cells import cell_len

from edgequant.cli import options
from edgequant.cli.words import count, visible
from edgequant.stages.inspect import ArrayReport, CoverageReport, InspectReport, inspect

_SHOWN_CHARACTERS = 80


@click.command("inspect")
@click.argument("file", metavar="FILE", type=options.path)
@options.shared
def command(file: Path, as_json: bool, quiet: bool) -> None:
    """List the keys and tensors of FILE, a GGUF model file or importance matrix.

    Shapes are (rows, columns); a row is contiguous on disk.
    """
    report = inspect(file)
    if as_json:
        options.print_json(asdict(report))
    elif not quiet:
        click.echo("\n".join(_lines(report)))


def _lines(report: InspectReport) -> Iterator[str]:
    yield visible(f"{report.path}: {report.summary}")
    files = f" in {len(report.files):,} files" if len(report.files) > 1 else ""
    yield (
        f"{report.bytes:,} bytes{files}, GGUF version {report.version}, alignment "
        f"{report.alignment}"
    )
    if report.keys:
        pairs = [(key, _describe(value)) for key, value in report.keys.items()]
        yield from ("", *_columns(("key", "value"), pairs))
    if report.coverage is not None:
        yield from ("", *_lines_of_coverage(report.coverage))
    elif report.tensors:
        tensors = [(t.name, t.type, t.shape, t.bytes) for t in report.tensors]
        yield from ("", *_columns(("tensor", "type", "shape", "bytes"), tensors))
    if report.types:
        yield from ("", *_lines_of_types(report))


def _lines_of_types(report: InspectReport) -> Iterator[str]:
    totals = [(t.type, t.tensors, t.parameters, t.bytes) for t in report.types]
    totals.append(("all", len(report.tensors), report.parameters, report.tensor_bytes))
    headers = ("type", "tensors", "parameters", "bytes", "bits per weight")
    yield from _columns(headers, [(*total, f"{8 * total[3] / total[2]:.3f}") for total in totals])


def _lines_of_coverage(coverage: CoverageReport) -> Iterator[str]:
    chunks = (
        "an unknown number of chunks"
        if coverage.chunks is None
        else count(coverage.chunks, "chunk")
    )
    size = "" if coverage.chunk_size is None else f" of {coverage.chunk_size:,} tokens"
    datasets = ", ".join(map(str, coverage.datasets)) or "unnamed text"
    yield visible(f"{len(coverage.entries):,} entries from {chunks}{size} of {datasets}")
    headers = ("entry", "columns", "matrices", "unseen", "zero columns", "tokens")
    entries = [
        (e.name, e.columns, e.matrices, e.unseen, e.zeros, e.tokens) for e in coverage.entries
    ]
    yield from _columns(headers, entries)


def _columns(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Lay out a table, integers to the right.

    Not by rich, which cuts or folds names to the width of a terminal, also in a pipe, and takes
    seconds for a thousand tensors.
    """
    cells = [[f"{c:,}" if isinstance(c, int) else visible(str(c)) for c in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(headers, *cells, strict=True)]
    right = [isinstance(cell, int) for cell in rows[0]] if rows else [False] * len(headers)
    for row in (headers, *cells):
        padded = (
            " " * (width - cell_len(cell)) + cell
            if to_right
            else cell + " " * (width - cell_len(cell))
            for cell, width, to_right in zip(row, widths, right, strict=True)
        )
        yield "  ".join(padded).rstrip()


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
