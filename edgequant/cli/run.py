"""`edgequant run`: text from a prompt."""

import math
import re
import sys
from dataclasses import asdict
from pathlib import Path

import click

from edgequant.cli import options
from edgequant.cli.words import count, size
from edgequant.device import Choice
from edgequant.device.protocol import Sampling
from edgequant.stages.generate import Generation, generate
from edgequant.stages.text import decode

# What a model writes must not command the terminal: control characters but for tab and line end.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def _finite(_ctx: click.Context, param: click.Parameter, value: float) -> float:
    """Refuse nan and infinity, which compare as if they were in a range."""
    if not math.isfinite(value):
        raise click.BadParameter(f"{value} is not in the range of finite numbers.", param=param)
    return value


@click.command("run")
@click.argument("model", metavar="MODEL.gguf", type=options.path)
@click.option(
    "-p", "--prompt", required=True, metavar="TEXT", help="What to continue; - reads it from stdin."
)
@click.option(
    "-n", "--tokens", "limit", type=click.IntRange(min=-1), default=-1, show_default=True,
    metavar="N", help="Tokens to generate; -1: until the model ends or the context is full.",
)  # fmt: skip
@click.option("--chat", is_flag=True, help="Put the prompt in the model's chat template.")
@click.option(
    "--temp", type=click.FloatRange(min=0), default=0.8, show_default=True, metavar="T",
    callback=_finite, help="Temperature; 0 takes the likeliest token.",
)  # fmt: skip
@click.option(
    "--top-k", type=click.IntRange(min=0), default=40, show_default=True, metavar="K",
    help="Draw from the K likeliest tokens; 0 for all.",
)  # fmt: skip
@click.option(
    "--top-p", type=click.FloatRange(0, 1), default=0.95, show_default=True, metavar="P",
    callback=_finite,
    help="Draw from the likeliest tokens that have this share of the probability; 1 for all.",
)  # fmt: skip
@click.option(
    "--min-p", type=click.FloatRange(0, 1), default=0.05, show_default=True, metavar="P",
    callback=_finite, help="Drop tokens less likely than this share of the likeliest; 0 for none.",
)  # fmt: skip
@click.option(
    "--repeat-penalty", type=click.FloatRange(0.01, 100), default=1.0,
    show_default=True, metavar="R", callback=_finite,
    help="Make the last 64 tokens less likely; 1 for not.",
)  # fmt: skip
@click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), metavar="S",
    help="Of the draws, 0 to 2^32 - 1; left out, one is chosen and printed.",
)  # fmt: skip
@click.option(
    "--ctx", "context", type=click.IntRange(min=1), metavar="N",
    help="Tokens of prompt and text; left out, the model's context, 4096 at most.",
)  # fmt: skip
@options.engine
@options.shared
def command(
    model: Path,
    prompt: str,
    limit: int,
    chat: bool,
    temp: float,
    top_k: int,
    top_p: float,
    min_p: float,
    repeat_penalty: float,
    seed: int | None,
    context: int | None,
    device: Choice,
    as_json: bool,
    quiet: bool,
) -> None:
    """Continue a prompt; text on stdout as it comes, speed and memory on stderr.

    Ctrl-C ends the text and prints what was measured.
    """
    sampling = Sampling(temp, top_k, top_p, min_p, repeat_penalty, seed=seed)
    with options.shown_progress(quiet) as progress:
        report = generate(
            model,
            decode(sys.stdin.buffer.read(), "stdin") if prompt == "-" else prompt,
            device=device,
            limit=None if limit < 0 else limit,
            chat=chat,
            sampling=sampling,
            context=context,
            emit=(lambda _text: None) if as_json else _write,
            progress=progress,
        )
    if as_json:
        options.print_json(asdict(report))
    else:
        _write("\n")
        if not quiet:
            click.echo(_describe(report), err=True)
    if report.stopped == "interrupt":
        raise click.Abort


def _write(text: str) -> None:
    if sys.stdout.isatty():
        text = _CONTROL.sub(lambda match: repr(match[0])[1:-1], text)
    sys.stdout.write(text)
    sys.stdout.flush()


def _describe(report: Generation) -> str:
    rate = report.decode_tokens_per_second
    memory = report.peak_memory_bytes
    prefill = f"{report.prefill_tokens_per_second:,.1f} t/s"
    decode = "no step" if rate is None else f"{rate:,.1f} t/s"
    lines = (
        ("load", f"{report.load_seconds:.2f} s"),
        ("prefill", f"{count(report.prompt_tokens, 'token')}, {prefill}"),
        ("decode", f"{count(report.tokens, 'token')}, {decode}"),
        ("peak memory", "unknown" if memory is None else size(memory)),
        ("device", f"{report.device}; activations {report.activations}"),
        ("stopped by", f"{report.stopped}; seed {report.seed}"),
    )
    return "\n".join(f"{name:12}{value}" for name, value in lines)
