"""`edgequant perplexity`: how well a model predicts a text."""

from dataclasses import asdict
from pathlib import Path

import click

from edgequant.cli import options
from edgequant.cli.words import count
from edgequant.device import Choice
from edgequant.stages.perplexity import measure_perplexity


@click.command("perplexity")
@click.argument("model", metavar="MODEL.gguf", type=options.path)
@options.scored_text
@options.engine
@options.shared
def command(
    model: Path,
    text: Path,
    context: int,
    chunks: int | None,
    device: Choice,
    as_json: bool,
    quiet: bool,
) -> None:
    """Measure perplexity on a text, as llama-perplexity does.

    The text is cut into chunks of --ctx tokens, and the second half of each is scored.
    """
    with options.shown_progress(quiet) as progress:
        report = measure_perplexity(
            model, text, context=context, chunks=chunks, device=device, progress=progress
        )
    if as_json:
        options.print_json(asdict(report))
    elif not quiet:
        click.echo(
            f"PPL = {report.perplexity:.4f} ± {report.error:.4f} "
            f"({count(report.tokens, 'token')} of {count(report.chunks, 'chunk')} "
            f"of {report.context})"
        )
        click.echo(
            f"{report.seconds:.1f} s, {report.chunks * report.context / report.seconds:,.0f} "
            f"tokens/s on {report.device}; activations {report.activations}",
            err=True,
        )
