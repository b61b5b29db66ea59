"""`edgequant compare`: what quantizing lost."""

from dataclasses import asdict
from pathlib import Path

import click
from rich.table import Table

from edgequant.cli import options
from edgequant.cli.console import table_console
from edgequant.cli.words import count, size, visible
from edgequant.device import Choice
from edgequant.stages.compare import Comparison, compare


@click.command("compare")
@click.argument("reference", metavar="REFERENCE.gguf", type=options.path)
@click.argument(
    "candidates", metavar="CANDIDATE.gguf...", nargs=-1, required=True,
    type=options.path,
)  # fmt: skip
@options.scored_text
@options.engine
@options.shared
def command(
    reference: Path,
    candidates: tuple[Path, ...],
    text: Path,
    context: int,
    chunks: int | None,
    device: Choice,
    as_json: bool,
    quiet: bool,
) -> None:
    """Measure the KL divergence of each candidate to the reference on a text.

    All models run on one device, at once, on the tokens that `perplexity` scores.
    """
    with options.shown_progress(quiet) as progress:
        report = compare(
            reference,
            candidates,
            text,
            context=context,
            chunks=chunks,
            device=device,
            progress=progress,
        )
    if as_json:
        options.print_json(asdict(report))
    elif not quiet:
        table_console().print(_table(report))
        click.echo(
            f"{count(report.tokens, 'token')} of {count(report.chunks, 'chunk')} "
            f"of {report.context}, "
            f"{report.seconds:.1f} s on {report.device}; activations {report.activations}",
            err=True,
        )


def _table(report: Comparison) -> Table:
    table = Table()
    table.add_column("model")
    for name in ("size", "perplexity", "ratio", "KL to the first", "same top"):
        table.add_column(name, justify="right")
    first = report.reference
    table.add_row(
        visible(first.name),
        size(first.bytes),
        f"{first.perplexity:.4f} ± {first.perplexity_error:.4f}",
        "", "", "",
    )  # fmt: skip
    for model in report.candidates:
        table.add_row(
            visible(model.name),
            size(model.bytes),
            f"{model.perplexity:.4f} ± {model.perplexity_error:.4f}",
            f"{model.perplexity_ratio:.5f} ± {model.perplexity_ratio_error:.5f}",
            f"{model.kl:.5f} ± {model.kl_error:.5f}",
            f"{model.same_top:.2%}",
        )
    return table
