"""`edgequant tune`: better levels for a quantized model, learned from the one it was made of."""

from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console

from edgequant.cli import options
from edgequant.cli.console import table_console
from edgequant.cli.words import count, visible
from edgequant.stages.school import Course
from edgequant.stages.tune import TuneReport, tune


@click.command("tune")
@click.argument("model", metavar="QUANTIZED.gguf", type=options.path)
@click.option(
    "--reference", required=True, type=options.path, metavar="MODEL.gguf",
    help="The file that it was quantized from.",
)  # fmt: skip
@click.option(
    "-o", "--output", required=True, type=options.path, metavar="OUT.gguf", help="File to write."
)
@options.learned_texts
@options.chunk_size
@click.option(
    "--chunks", type=click.IntRange(min=2), metavar="N",
    help="Chunks at most; left out, the whole text.",
)  # fmt: skip
@click.option(
    "--passes", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
    help="How often to learn from each chunk.",
)  # fmt: skip
@click.option(
    "--batch", type=click.IntRange(min=1), default=4, show_default=True, metavar="N",
    help="Chunks between two steps.",
)  # fmt: skip
@click.option(
    "--reach", type=click.FloatRange(min=0, min_open=True), default=0.7, show_default=True,
    metavar="R", help="How far a weight can go in all, in distances of levels.",
)  # fmt: skip
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, metavar="N",
    help="Of the order of the chunks.",
)  # fmt: skip
@options.force
@options.shared
def command(
    model: Path,
    reference: Path,
    output: Path,
    texts: tuple[Path, ...],
    context: int,
    chunks: int | None,
    passes: int,
    batch: int,
    reach: float,
    seed: int,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Bring a quantized model closer to the one it was made of.

    Layer by layer, its levels are rounded anew, all together, so that on a text the layer's output
    is near to the reference's; types, scales and size stay. It takes as long as about ten readings
    of the text by the reference.
    """
    with options.shown_progress(quiet) as progress:
        report = tune(
            model, output, reference=reference, texts=texts, context=context, chunks=chunks,
            course=Course(passes, batch, reach, seed), force=force, progress=progress,
        )  # fmt: skip
    if as_json:
        options.print_json(asdict(report) | {"output": str(report.output)})
    elif not quiet:
        show_tuning(table_console(), report)


def show_tuning(console: Console, report: TuneReport) -> None:
    """Say what it did: the result on stdout, how on stderr."""
    console.print(
        f"{visible(str(report.output))}: KL {report.kl_before:.5f} -> {report.kl_after:.5f} on "
        f"{count(report.held_back, 'chunk')} held back; {count(report.tuned, 'tensor')} tuned, "
        f"{report.changed:.1%} of their weights changed",
        soft_wrap=True,
    )
    click.echo(
        f"{report.seconds:.1f} s, {count(report.steps, 'step')} a layer over "
        f"{count(report.chunks, 'chunk')} of {report.chunk_size:,} tokens; "
        f"{', '.join(report.datasets)}",
        err=True,
    )
