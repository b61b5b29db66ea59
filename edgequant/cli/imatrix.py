"""`edgequant imatrix`: which weights matter, measured on text."""

from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from edgequant.cli import options
from edgequant.cli.console import table_console
from edgequant.cli.words import count, visible
from edgequant.stages.imatrix import ImatrixReport, collect

_LOWEST = 5  # entries shown


@click.command("imatrix")
@click.argument("model", metavar="MODEL.gguf", type=options.path)
@click.option(
    "-o", "--output", required=True, type=options.path, metavar="IMATRIX.gguf",
    help="File to write.",
)  # fmt: skip
@options.learned_texts
@options.chunk_size
@click.option(
    "--chunks", type=click.IntRange(min=1), metavar="N",
    help="Chunks in the file at the end, at most; left out, the whole text.",
)  # fmt: skip
@click.option("--resume", is_flag=True, help="Add to the chunks that IMATRIX.gguf holds.")
@click.option("--process-output", is_flag=True, help="Collect the output layer's input too.")
@options.device
@options.force
@options.shared
def command(
    model: Path,
    output: Path,
    texts: tuple[Path, ...],
    context: int,
    chunks: int | None,
    resume: bool,
    process_output: bool,
    device: str,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Measure on text how much each column of each weight matters.

    Ctrl-C keeps the chunks that are done; the same command with --resume goes on from there.
    """
    with options.shown_progress(quiet) as progress:
        report = collect(
            model, output, texts=texts, context=context, chunks=chunks, device=device,
            resume=resume, process_output=process_output, force=force, progress=progress,
        )  # fmt: skip
    if as_json:
        options.print_json(asdict(report) | {"output": str(report.output)})
    elif not quiet:
        _show(table_console(), report)


def _show(console: Console, report: ImatrixReport) -> None:
    resumed = f", {report.resumed_from:,} of them from before" if report.resumed_from else ""
    console.print(
        f"{report.output}: {len(report.entries):,} entries from {count(report.chunks, 'chunk')} of "
        f"{report.chunk_size:,} tokens{resumed}; {', '.join(report.datasets)}",
        soft_wrap=True,
    )
    _show_coverage(console, report)
    click.echo(
        f"{report.seconds:.1f} s, {report.tokens_per_second:,.0f} tokens/s on {report.device}; "
        f"activations {report.activations}",
        err=True,
    )


def _show_coverage(console: Console, report: ImatrixReport) -> None:
    """Say it in a line where the text reached everything, else show what it reached least."""
    tokens = {entry.tokens for entry in report.entries}
    if len(tokens) == 1 and not any(entry.zero_share for entry in report.entries):
        console.print(f"each saw {tokens.pop():,} tokens, and no column was always zero")
        return
    lowest = Table("least covered", box=None)
    lowest.add_column("tokens", justify="right")
    lowest.add_column("zero columns", justify="right")
    for entry in sorted(report.entries, key=lambda e: (e.tokens, -e.zero_share))[:_LOWEST]:
        lowest.add_row(visible(entry.name), f"{entry.tokens:,}", f"{entry.zero_share:.1%}")
    console.print(lowest)
