"""`edgequant quantize`: a model file in fewer bits."""

from collections import Counter
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from edgequant.cli import options
from edgequant.cli.words import size, visible
from edgequant.model.recipes import RECIPES
from edgequant.stages.quantize import quantize
from edgequant.stages.quantize_report import QuantizeReport

_WORST = 5  # tensors shown


@click.command("quantize")
@click.argument("model", metavar="MODEL.gguf", type=options.path)
@click.option("-o", "--output", type=options.path, metavar="OUT.gguf", help="File to write.")
@click.option(
    "--type", "recipe", required=True, metavar="TYPE", help=f"One of {', '.join(RECIPES)}."
)
@click.option(
    "--imatrix", type=options.path, metavar="F",
    help="Importance matrix of this model, from edgequant imatrix or llama-imatrix.",
)  # fmt: skip
@click.option(
    "--threads", type=click.IntRange(min=1), metavar="N",
    help="Threads; left out, one a processor.",
)  # fmt: skip
@click.option("--strict", is_flag=True, help="Fail where rows do not fit the format of the type.")
@click.option("--dry-run", is_flag=True, help="Show types and sizes, and write nothing.")
@options.force
@options.shared
def command(
    model: Path,
    output: Path | None,
    recipe: str,
    imatrix: Path | None,
    threads: int | None,
    strict: bool,
    dry_run: bool,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write MODEL.gguf, an F16, BF16 or F32 model file, in the formats of a type such as Q4_K_M."""
    if output is None and not dry_run:
        raise click.UsageError("Missing option '-o' / '--output'.")
    with options.shown_progress(quiet) as progress:
        report = quantize(
            model, output, type=recipe, imatrix=imatrix, threads=threads, strict=strict,
            force=force, dry_run=dry_run, progress=progress,
        )  # fmt: skip
    if as_json:
        options.print_json(asdict(report) | {"output": None if output is None else str(output)})
    elif not quiet:
        _show(options.table_console(), report, output)


def _show(console: Console, report: QuantizeReport, output: Path | None) -> None:
    types = Table("type", box=None)
    types.add_column("tensors", justify="right")
    types.add_column("size", justify="right")
    counts = Counter(tensor.type for tensor in report.tensors)
    for name, count in counts.most_common():
        nbytes = sum(tensor.bytes for tensor in report.tensors if tensor.type == name)
        types.add_row(name, f"{count:,}", size(nbytes))
    console.print(types)
    lossy = [(tensor.error, tensor) for tensor in report.tensors if tensor.error]
    if lossy:
        worst = Table("most is lost in", "type", box=None)
        worst.add_column("error", justify="right")
        for error, tensor in sorted(lossy, key=lambda pair: pair[0], reverse=True)[:_WORST]:
            worst.add_row(visible(tensor.name), tensor.type, f"{100 * error:.3g}%")
        console.print(worst)
    for note in report.notes:
        console.print(f"Note: {visible(note)}", soft_wrap=True)
    verb = "would be" if report.dry_run else f"{output}:"
    console.print(
        f"{verb} {report.recipe}, {size(report.bytes)} ({size(report.source_bytes)} before), "
        f"{report.bits_per_weight:.2f} bits per weight; "
        f"{report.seconds:.1f} s, {report.threads} threads",
        soft_wrap=True,
    )
