"""`edgequant bundle`: a model for apps that are not Python."""

import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from edgequant.cli import options
from edgequant.cli.words import count, size, visible
from edgequant.device.targets import TARGETS, find_target
from edgequant.graph.launch import Limits
from edgequant.stages.bundle import BundleReport, bundle
from edgequant.stages.bundle_readme import listed


def _parse_matrix(
    _ctx: click.Context, param: click.Parameter, text: str | None
) -> tuple[int, int, int] | str | None:
    """Return (M, N, K), "none" as it is, or None where the option was left out."""
    if text is None or text == "none":
        return text
    match = re.fullmatch(r"(\d{1,3})x(\d{1,3})x(\d{1,3})", text)
    if match is None:
        raise click.BadParameter(
            f"{text!r} is not a size such as 16x16x16, and not none.", param=param
        )
    return int(match[1]), int(match[2]), int(match[3])


@click.command("bundle")
@click.argument("model", metavar="MODEL.gguf", type=options.path)
@click.option(
    "-o", "--output", required=True, metavar="DIR", type=options.path, help="Folder to write."
)
@click.option(
    "--target", required=True, type=click.Choice(tuple(TARGETS)),
    help="What it is for: Metal kernels for ios and macos, SPIR-V for android and linux.",
)  # fmt: skip
@click.option("--link", is_flag=True, help="Make a hard link of the model, instead of a copy.")
@click.option(
    "--ctx", "context", type=click.IntRange(min=1), metavar="N",
    help="Tokens of prompt and text; left out, the model's context, 4096 at most.",
)  # fmt: skip
@options.cache_type
@click.option(
    "--subgroup", "subgroups", type=click.Choice(("8", "16", "32", "64")), multiple=True,
    help="Lanes of a subgroup that GPUs have; several times: a manifest for each; left out, the "
         "target's.",
)  # fmt: skip
@click.option(
    "--workgroup", type=click.IntRange(256, 1024), metavar="N",
    help="Threads of a workgroup at most; left out, the target's.",
)  # fmt: skip
@click.option(
    "--shared", "shared_bytes", type=click.IntRange(16 << 10, 1 << 20), metavar="BYTES",
    help="Memory shared by a workgroup; left out, the target's.",
)  # fmt: skip
@click.option(
    "--matrix", metavar="MxNxK", callback=_parse_matrix,
    help="Cooperative matrices, such as 16x16x16, or none; left out, the target's.",
)  # fmt: skip
@click.option(
    "--integer-dot/--no-integer-dot", default=None,
    help="Whether int8 dot products are fast; left out, the target's.",
)  # fmt: skip
@options.force
@options.shared
def command(
    model: Path,
    output: Path,
    target: str,
    link: bool,
    context: int | None,
    cache_type: str | None,
    subgroups: tuple[str, ...],
    workgroup: int | None,
    shared_bytes: int | None,
    matrix: tuple[int, int, int] | str | None,
    integer_dot: bool | None,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write a folder with which an app that has no Python runs MODEL.gguf on a GPU.

    It holds the model, the kernels it needs, a manifest of every buffer and dispatch, and a README
    for the app's author. What the GPU can do is assumed: by the target, or by the options here.
    """
    changes = {
        "workgroup": workgroup,
        "shared_bytes": shared_bytes,
        "integer_dot": integer_dot,
    }
    assumed = find_target(target).assumed
    if subgroups:
        assumed = tuple(replace(assumed[0], subgroup=int(n)) for n in dict.fromkeys(subgroups))
    limits = [_assume(limits, changes, matrix) for limits in assumed]
    with options.shown_progress(quiet) as progress:
        report = bundle(
            model, output, target=target, limits=limits, context=context,
            cache=cache_type or "f16", link=link, force=force, progress=progress,
        )  # fmt: skip
    if as_json:
        options.print_json(asdict(report))
    elif not quiet:
        click.echo(_describe(report))


def _assume(
    limits: Limits, changes: Mapping[str, Any], matrix: tuple[int, int, int] | str | None
) -> Limits:
    """Change a target's limits where an option was given."""
    if matrix is not None:
        limits = replace(limits, cooperative_matrix=None if isinstance(matrix, str) else matrix)
    return replace(limits, **{name: new for name, new in changes.items() if new is not None})


def _describe(report: BundleReport) -> str:
    limits, matrix = report.limits[0], report.limits[0].cooperative_matrix
    lanes = listed([each.subgroup for each in report.limits])
    model = size(report.model_bytes) + (", linked" if report.linked else "")
    rest = size(report.bytes - report.model_bytes)
    shape = "none" if matrix is None else " x ".join(map(str, matrix))
    lines = (
        ("bundle", f"{visible(report.path)} for {report.target}, {size(report.bytes)}"),
        ("model", f"{model}; all else {rest}"),
        ("memory", f"{size(report.memory_bytes)} of buffers, {report.cache} cache of "
                   f"{count(report.context, 'token')}"),
        ("kernels", f"{report.kernels}, as {count(report.pipelines, 'pipeline')}"),
        ("steps", f"{count(report.recordings, 'recording')}; "
                  f"{report.decode_dispatches:,} dispatches a token"),
        ("assumed", f"subgroups of {lanes}, workgroups of {limits.workgroup}, matrices "
                    f"{shape}, int8 dot products {'yes' if limits.integer_dot else 'no'}"),
    )  # fmt: skip
    return "\n".join(f"{name:10}{value}" for name, value in lines)
