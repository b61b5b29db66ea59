"""`edgequant bench`: prefill and decode speed."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich import box
from rich.table import Table

from edgequant.cli import options
from edgequant.cli.words import size
from edgequant.device import Choice
from edgequant.stages.bench import Speed, measure_speed


def _counts(_ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    """Read whole numbers between commas."""
    items = value.split(",")
    if not all(re.fullmatch("[0-9]{1,7}", item) for item in items):
        raise click.BadParameter(f"{value!r} is not whole numbers between commas.", param=param)
    return tuple(int(item) for item in items)


@click.command("bench")
@click.argument("model", metavar="MODEL.gguf", type=options.path)
@click.option(
    "-p", "--prompt", "prompts", default="512", show_default=True, metavar="N,...",
    callback=_counts, help="Tokens to prefill; 0 for no such test.",
)  # fmt: skip
@click.option(
    "-n", "--gen", "gens", default="128", show_default=True, metavar="N,...",
    callback=_counts, help="Tokens to decode; 0 for no such test.",
)  # fmt: skip
@click.option(
    "-d", "--depth", "depths", default="0", show_default=True, metavar="N,...",
    callback=_counts, help="Tokens in the cache before each test.",
)  # fmt: skip
@click.option(
    "-r", "--repetitions", type=click.IntRange(1, 1000), default=5, show_default=True,
    metavar="N", help="Timed runs of each test.",
)  # fmt: skip
@options.engine
@options.shared
def command(
    model: Path,
    prompts: tuple[int, ...],
    gens: tuple[int, ...],
    depths: tuple[int, ...],
    repetitions: int,
    device: Choice,
    as_json: bool,
    quiet: bool,
) -> None:
    """Measure prefill (pp) and decode (tg) speed on random tokens, as llama-bench does.

    Numbers between commas make a test each, at every depth.
    """
    if not any(prompts) and not any(gens):
        raise click.UsageError("Nothing to measure: -p and -n are 0.")
    with options.shown_progress(quiet) as progress:
        speeds = measure_speed(
            model,
            prompts=prompts,
            gens=gens,
            depths=depths,
            repetitions=repetitions,
            device=device,
            progress=progress,
        )
    if as_json:
        options.print_json([asdict(speed) for speed in speeds])
    elif not quiet:
        options.table_console().print(_table(speeds))


def _table(speeds: Sequence[Speed]) -> Table:
    table = Table(box=box.MARKDOWN)
    table.add_column("model")
    table.add_column("size", justify="right")
    table.add_column("params", justify="right")
    table.add_column("backend")
    table.add_column("threads", justify="right")
    table.add_column("test", justify="right")
    table.add_column("t/s", justify="right")
    for speed in speeds:
        table.add_row(
            speed.model_type,
            size(speed.model_size),
            f"{speed.model_n_params / 1e6:,.2f} M",
            speed.backends,
            str(speed.n_threads),
            speed.test,
            f"{speed.avg_ts:,.2f} ± {speed.stddev_ts:,.2f}",
        )
    return table
