"""`edgequant bench`: prefill and decode speed."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.table import Table

from edgequant.cli import options
from edgequant.cli.console import table_console
from edgequant.cli.words import size
from edgequant.device import Choice
from edgequant.stages.bench import Speed, measure_speed
from edgequant.stages.profile import KernelTime, Profile, profile


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
@click.option(
    "--profile", "profiled", is_flag=True,
    help="Time each kernel of a step instead, beside what the GPU can read and multiply.",
)  # fmt: skip
@options.engine
@options.shared
def command(
    model: Path,
    prompts: tuple[int, ...],
    gens: tuple[int, ...],
    depths: tuple[int, ...],
    repetitions: int,
    profiled: bool,
    device: Choice,
    as_json: bool,
    quiet: bool,
) -> None:
    """Measure prefill (pp) and decode (tg) speed on random tokens, as llama-bench does.

    Numbers between commas make a test each, at every depth.
    """
    if not any(prompts) and not any(gens):
        raise click.UsageError("Nothing to measure: -p and -n are 0.")
    asked: dict[str, Any] = {
        "prompts": prompts, "depths": depths, "repetitions": repetitions, "device": device,
    }  # fmt: skip
    reports: tuple[Profile, ...] | tuple[Speed, ...]
    with options.shown_progress(quiet) as progress:
        if profiled:
            reports = profile(model, **asked, progress=progress)
            shown: list[Table | str] = [part for step in reports for part in _kernels(step)]
        else:
            reports = measure_speed(model, gens=gens, **asked, progress=progress)
            shown = [_table(reports)]
    if as_json:
        options.print_json([asdict(report) for report in reports])
    elif not quiet:
        for part in shown:
            table_console().print(part, soft_wrap=isinstance(part, str))


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


def _kernels(step: Profile) -> tuple[str, Table]:
    """Lay out one step, below a line with the ceilings."""
    title = (
        f"{step.test}: {1e3 * step.seconds:,.3f} ms on {step.device}, which reads "
        f"{step.read_ceiling_gb_per_second:,.1f} GB/s and multiplies "
        f"{step.multiply_ceiling_gflop_per_second:,.1f} GFLOP/s"
    )
    table = Table(box=box.MARKDOWN)
    table.add_column("for")
    table.add_column("kernel")
    for name in ("calls", "ms", "share", "GB/s", "of read", "GFLOP/s", "of multiply"):
        table.add_column(name, justify="right")
    for kernel in step.kernels:
        table.add_row(*_row(kernel))
    return title, table


def _row(kernel: KernelTime) -> tuple[str, ...]:
    return (
        kernel.label,
        kernel.kernel,
        str(kernel.calls),
        f"{1e3 * kernel.seconds:,.3f}",
        f"{kernel.share:.1%}",
        f"{kernel.read_gb_per_second:,.1f}",
        f"{kernel.read_share:.1%}",
        f"{kernel.gflop_per_second:,.1f}",
        f"{kernel.multiply_share:.1%}",
    )
