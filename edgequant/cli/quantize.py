"""`edgequant quantize`: a model file in fewer bits."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from edgequant.cli import options, report_files
from edgequant.cli.console import table_console
from edgequant.cli.plan_table import plan_table
from edgequant.cli.tune import show_tuning
from edgequant.cli.words import size, visible
from edgequant.formats import Effort
from edgequant.model.overrides import read_overrides
from edgequant.model.recipes import RECIPES
from edgequant.stages.quantize import quantize
from edgequant.stages.quantize_plan import Wish
from edgequant.stages.quantize_report import QuantizeReport
from edgequant.stages.quantize_tuned import quantize_tuned

_WORST = 5  # tensors shown


@click.command("quantize")
@click.argument("model", metavar="MODEL.gguf", type=options.path)
@click.option("-o", "--output", type=options.path, metavar="OUT.gguf", help="File to write.")
@click.option("--type", metavar="TYPE", help=f"One of {', '.join(RECIPES)}.")
@click.option(
    "--target-size", type=options.parse_size, metavar="SIZE",
    help="Instead of --type: the formats that lose least in a file of at most SIZE, such as 4.5G.",
)  # fmt: skip
@click.option(
    "--target-bpw", type=float, metavar="BITS",
    help="The same with so many bits per weight at most, such as 4.8.",
)  # fmt: skip
@click.option(
    "--target-formats", metavar="F,F…",
    help="Choose among these only, with a target; such as Q2_K,Q3_K,Q4_K,Q5_K,Q6_K for a device "
    "that has no IQ2 and IQ3.",
)  # fmt: skip
@click.option("--pure", is_flag=True, help="No mix: the format of the type for all tensors.")
@click.option("--output-type", metavar="FORMAT", help="Format of the output matrix.")
@click.option("--embedding-type", metavar="FORMAT", help="Format of the token embedding.")
@click.option(
    "--tensor-type", "patterns", multiple=True, metavar="REGEX=FORMAT",
    help="Format of the tensors whose name matches; the first of several that match decides.",
)  # fmt: skip
@click.option("--keep-output", is_flag=True, help="Leave the output matrix as it is.")
@click.option(
    "--allow-requantize", is_flag=True,
    help="Take a model that is quantized already, although rounding twice loses more.",
)  # fmt: skip
@click.option(
    "--effort", type=click.Choice([effort.value for effort in Effort]), metavar="E",
    default=Effort.DEFAULT.value, show_default=True,
    help=f"How hard to look for the least error: {', '.join(effort.value for effort in Effort)}.",
)  # fmt: skip
@click.option(
    "--imatrix", type=options.path, metavar="F",
    help="Importance matrix of this model, from edgequant imatrix or llama-imatrix.",
)  # fmt: skip
@click.option(
    "--threads", type=click.IntRange(min=1), metavar="N",
    help="Processors to use; left out, all that it may.",
)  # fmt: skip
@click.option("--strict", is_flag=True, help="Fail where rows do not fit the format of the type.")
@click.option(
    "--split-max-size", "part_nbytes", type=options.parse_size, metavar="SIZE",
    help="Write files OUT-00001-of-0000N.gguf of at most SIZE each, such as 2G.",
)  # fmt: skip
@click.option(
    "--resume", is_flag=True,
    help="Keep what is finished if the run is cut short, and go on from what was kept.",
)  # fmt: skip
@click.option(
    "--tune", "tuned", is_flag=True,
    help="Tune it too, as edgequant tune does, with MODEL.gguf as the reference.",
)  # fmt: skip
@click.option(
    "--tune-text", "texts", multiple=True, type=options.path, metavar="TEXT",
    help="With --tune: a UTF-8 text file; may be given several times. Left out, the texts that are "
    "shipped.",
)  # fmt: skip
@report_files.option
@click.option("--dry-run", is_flag=True, help="Show types and sizes, and write nothing.")
@options.force
@options.shared
def command(
    model: Path,
    output: Path | None,
    type: str | None,  # noqa: A002 -- the option's name
    target_size: int | None,
    target_bpw: float | None,
    target_formats: str | None,
    pure: bool,
    output_type: str | None,
    embedding_type: str | None,
    patterns: tuple[str, ...],
    keep_output: bool,
    allow_requantize: bool,
    effort: str,
    imatrix: Path | None,
    threads: int | None,
    strict: bool,
    part_nbytes: int | None,
    resume: bool,
    tuned: bool,
    texts: tuple[Path, ...],
    report_file: Path | None,
    dry_run: bool,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write MODEL.gguf, an F16, BF16 or F32 model file, in fewer bits.

    Its formats are those of a type such as Q4_K_M, or those that lose least in a given size.
    """
    if output is None and not dry_run:
        raise click.UsageError("Missing option '-o' / '--output'.")
    if sum(goal is not None for goal in (type, target_size, target_bpw)) != 1:
        raise click.UsageError("Give one of --type, --target-size and --target-bpw.")
    if texts and not tuned:
        raise click.UsageError("--tune-text needs --tune.")
    if tuned and (dry_run or resume or part_nbytes is not None):
        raise click.UsageError("--tune goes with none of --dry-run, --resume, --split-max-size.")
    overrides = read_overrides(
        pure=pure, output=output_type, embedding=embedding_type, patterns=patterns,
        keep_output=keep_output, among=target_formats,
    )  # fmt: skip
    wish = Wish(type, target_size, target_bpw, overrides, allow_requantize, strict)
    if report_file is not None:
        others = [path for path in (model, output, imatrix, *texts) if path is not None]
        report_files.check_report(report_file, force=force, others=others)
    tuning = None
    with options.shown_progress(quiet) as progress:
        if tuned and output is not None:
            report, tuning = quantize_tuned(
                model, output, type=wish, texts=texts, imatrix=imatrix, effort=Effort(effort),
                threads=threads, force=force, progress=progress,
            )  # fmt: skip
        else:
            report = quantize(
                model, output, type=wish, imatrix=imatrix, effort=Effort(effort), threads=threads,
                force=force, dry_run=dry_run, part_nbytes=part_nbytes, resume=resume,
                progress=progress,
            )  # fmt: skip
    if report_file is not None:
        report_files.write_report(report_file, report, model.name)
    if as_json:
        fields = asdict(report) | {"output": None if output is None else str(output)}
        if tuning is not None:
            fields["tuning"] = asdict(tuning) | {"output": str(output)}
        options.print_json(fields)
    elif not quiet:
        _show(table_console(), report, plan=dry_run or type is None)
        if tuning is not None:
            show_tuning(table_console(), tuning)


def _show(console: Console, report: QuantizeReport, *, plan: bool) -> None:
    if plan:
        console.print(plan_table(report.tensors))
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
    many = f"{len(report.files):,} files " if len(report.files) > 1 else ""
    verb = f"{many}would be" if report.dry_run else f"{_name(report.files)}:"
    console.print(
        f"{verb} {report.recipe}, {size(report.bytes)} ({size(report.source_bytes)} before), "
        f"{report.bits_per_weight:.2f} bits per weight; "
        f"{report.seconds:.1f} s, {report.threads} threads",
        soft_wrap=True,
    )


def _name(files: Sequence[str]) -> str:
    others = f" and {len(files) - 1:,} more" if len(files) > 1 else ""
    return f"{visible(files[0])}{others}"
