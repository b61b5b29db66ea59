"""What every command shares: common options, the progress bar, and JSON output."""

import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from edgequant import progress
from edgequant.device import Choice

F = TypeVar("F", bound=Callable[..., Any])

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
          "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}  # fmt: skip


def parse_size(text: str) -> int:
    """Return a number of bytes: "2G" is 2 · 10^9, as in llama-gguf-split; "2GiB" is 2 · 2^30.

    Raises:
        BadParameter: it is not a size, or less than a byte.
    """
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)([KMGT]|[KMGT]B|[KMGT]iB|)", text, re.IGNORECASE)
    nbytes = 0
    if match is not None:
        unit = match[2].upper()
        nbytes = int(Decimal(match[1]) * _UNITS[unit if "I" in unit else unit[:1]])
    if nbytes == 0:
        raise click.BadParameter(f"{text!r} is not a size such as 500M, 2G or 1.5GiB.")
    return nbytes


# click would call a file that may not be read a wrong usage; stages say what is wrong with a file.
path = click.Path(path_type=Path, readable=False)


def shared(command: F) -> F:
    """Add --json, -q and --debug (which `main` reads) to a command."""
    command = click.option(
        "--debug", is_flag=True, expose_value=False, help="Show a traceback with an error."
    )(command)
    command = click.option("-q", "--quiet", is_flag=True, help="No progress and no table.")(command)
    return click.option(
        "--json", "as_json", is_flag=True, help="Print the report as JSON on stdout."
    )(command)


device = click.option(
    "--device",
    default="auto",
    show_default=True,
    metavar="D",
    help="auto, metal, vulkan (vulkan:1 for the second GPU), llama (llama:N for N threads) or cpu.",
)


cache_type = click.option(
    "--cache-type", type=click.Choice(("f16", "q8_0", "f32")), metavar="T",
    help="Of the KV cache on a GPU: f16, q8_0 for half the memory, or f32; left out, f16.",
)  # fmt: skip


def engine(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --device, --cache-type and --exact, which the command gets as one `Choice`, `device`."""

    @wraps(command)
    def choose(*args: Any, device: str, cache_type: str | None, exact: bool, **others: Any) -> Any:
        return command(*args, device=Choice(device, cache_type, exact), **others)

    added = click.option(
        "--exact", is_flag=True,
        help="Keep the inputs of linear layers in float32, where a GPU would round them.",
    )(choose)  # fmt: skip
    return device(cache_type(added))


def scored_text(command: F) -> F:
    """Add -f, --ctx and --chunks: the text that `perplexity` and `compare` score."""
    command = click.option(
        "--chunks", type=click.IntRange(min=1), metavar="N",
        help="Chunks at most; left out, the whole text.",
    )(command)  # fmt: skip
    command = click.option(
        "--ctx", "context", type=click.IntRange(min=4), default=512, show_default=True,
        metavar="N", help="Tokens a chunk.",
    )(command)  # fmt: skip
    return click.option(
        "-f", "--file", "text", required=True, type=path, metavar="TEXT",
        help="A UTF-8 text file.",
    )(command)  # fmt: skip


learned_texts = click.option(
    "-f", "--file", "texts", multiple=True, type=path, metavar="TEXT",
    help="A UTF-8 text file; may be given several times. Left out, the texts that are shipped.",
)  # fmt: skip
chunk_size = click.option(
    "--ctx", "context", type=click.IntRange(min=4), default=512, show_default=True, metavar="N",
    help="Tokens a chunk.",
)  # fmt: skip
force = click.option("--force", is_flag=True, help="Overwrite the output file.")


@contextmanager
def shown_progress(quiet: bool) -> Iterator[progress.Progress]:
    """Give a stage something to report to; the bar is gone when the block ends, however it ends."""
    if quiet:
        yield progress.SILENT
        return
    from edgequant.cli.console import Bar  # it takes as long to load as a small model

    bar = Bar()
    try:
        yield bar
    finally:
        bar.end()


def print_json(report: object) -> None:
    """Print one JSON object on stdout, in ASCII, so that no pipe's encoding loses a letter."""
    sys.stdout.write(as_json(report))


def as_json(report: object) -> str:
    """Return one JSON object in a line.

    Numbers that are not finite become null; bytes of names that are not UTF-8 become visible.
    """
    return json.dumps(_plain(report)) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return value
