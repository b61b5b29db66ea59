"""`edgequant convert`: a checkpoint as a model file."""

from dataclasses import asdict
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from edgequant.cli import options
from edgequant.stages.convert import ConvertReport, convert


@click.command(name="convert")
@click.argument("checkpoint")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    metavar="MODEL.gguf",
    help="File to write.",
)
@click.option(
    "--outtype",
    default="f16",
    show_default=True,
    type=click.Choice(["f16", "bf16", "f32", "auto"]),
    help="Float type of the matrices; auto is that of the checkpoint (F32 becomes BF16).",
)
@options.force
@options.shared
def command(
    checkpoint: str, output: Path, outtype: str, force: bool, as_json: bool, quiet: bool
) -> None:
    """Turn a Hugging Face checkpoint into a GGUF model file.

    CHECKPOINT is a directory with config.json and *.safetensors, or an id on the Hugging Face Hub:
    owner/name, or owner/name@revision.
    """
    with options.shown_progress(quiet) as progress:
        report = convert(checkpoint, output, outtype=outtype, force=force, progress=progress)
    if as_json:
        options.print_json(asdict(report) | {"output": str(report.output)})
    elif not quiet:
        _print_table(report)


def _print_table(report: ConvertReport) -> None:
    table = Table(show_header=False, box=None)
    table.add_row("output", Text(str(report.output)))
    table.add_row("architecture", report.architecture)
    table.add_row("type", report.outtype)
    table.add_row("tensors", f"{report.tensors:,}")
    table.add_row("parameters", f"{report.parameters:,}")
    table.add_row("size", f"{report.bytes / 1e6:,.1f} MB")
    table.add_row("time", f"{report.seconds:.1f} s")
    for note in report.notes:
        table.add_row("note", Text(note))
    options.table_console().print(table)
