"""`edgequant convert`: a checkpoint as a model file."""

from dataclasses import asdict
from pathlib import Path

import click

from edgequant.cli import options
from edgequant.cli.words import size, visible
from edgequant.stages.convert import ConvertReport, convert


@click.command(name="convert")
@click.argument("checkpoint")
@click.option(
    "-o",
    "--output",
    required=True,
    type=options.path,
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
        _print_lines(report)


def _print_lines(report: ConvertReport) -> None:
    lines = {
        "output": report.output,
        "architecture": report.architecture,
        "type": report.outtype,
        "tensors": f"{report.tensors:,}",
        "parameters": f"{report.parameters:,}",
        "size": size(report.bytes),
        "time": f"{report.seconds:.1f} s",
    }
    for name, value in lines.items():
        click.echo(f"{name:<13} {value}")
    for note in report.notes:
        click.echo(f"{'note':<13} {visible(note)}")
