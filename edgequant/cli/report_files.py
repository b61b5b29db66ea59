"""`--report FILE`: what a stage reports, as a page to look at or as JSON."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from edgequant.cli.options import as_json
from edgequant.errors import FileError
from edgequant.gguf.destination import blamed_on, check_output
from edgequant.stages.quantize_report import QuantizeReport
from edgequant.stages.report_page import render_page

SUFFIXES = (".html", ".json")


def _parse_path(text: str) -> Path:
    path = Path(text)
    if path.suffix.lower() not in SUFFIXES:
        raise click.BadParameter(f"{text!r} does not end in {' or '.join(SUFFIXES)}.")
    return path


option = click.option(
    "--report", "report_file", type=_parse_path, metavar="FILE",
    help="Write errors and sizes by tensor and layer to FILE.html, to look at, or FILE.json.",
)  # fmt: skip


def check_report(path: Path, *, force: bool, others: Sequence[Path]) -> None:
    """Check before the work that a report can be written after it.

    Args:
        path: of the report.
        force: replace a file that is there.
        others: the files that are read and written.

    Raises:
        FileError: it exists, cannot be written, or is one of the others.
    """
    if os.path.realpath(path) in map(os.path.realpath, others):
        raise FileError(
            f"{path}: is to be the report, and another file of this run too.",
            hint="choose another name for the report.",
        )
    check_output(path, force=force)


def write_report(path: Path, report: QuantizeReport, title: str) -> None:
    """Write a report in the form that the path's suffix names.

    Raises:
        FileError: it cannot be written.
    """
    is_page = path.suffix.lower() == ".html"
    text = render_page(report, title) if is_page else as_json(asdict(report))
    with blamed_on(path):
        # File names need not be Unicode; backslashes are right in JSON, too.
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
