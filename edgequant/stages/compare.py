"""What quantizing lost: KL divergence of candidates to a reference, through one device.

The chunks and scored positions are perplexity's. All models are open at once and fed in lockstep,
a few rows of logits at a time, so no logits file is needed; what is held in memory is what the
device makes of each file, and mapped files cost page cache only.
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from edgequant.device import Choice, open_device
from edgequant.device.protocol import Tokens
from edgequant.errors import UnsupportedError
from edgequant.progress import SILENT, Progress
from edgequant.runtime.model import Model, open_model
from edgequant.runtime.session import Session
from edgequant.stages.scores import Scores, divergence, estimate, same_top, surprise
from edgequant.stages.text import cut, read_text


@dataclass(frozen=True)
class Reference:
    """The model that others are measured against."""

    name: str
    bytes: int
    perplexity: float
    perplexity_error: float


@dataclass(frozen=True)
class Candidate:
    """How far a model is from the reference.

    Attributes:
        name: the file's name; its path if two files have one name.
        bytes: the file's size.
        kl: mean KL(reference || candidate), nats a token.
        kl_error: its standard error.
        perplexity: on the same tokens.
        perplexity_error: its standard error.
        perplexity_ratio: to the reference's.
        perplexity_ratio_error: its standard error, smaller than the perplexities' own, as both
            models score the same tokens.
        same_top: share of tokens where the most likely one is the same, 0..1.
    """

    name: str
    bytes: int
    kl: float
    kl_error: float
    perplexity: float
    perplexity_error: float
    perplexity_ratio: float
    perplexity_ratio_error: float
    same_top: float


@dataclass(frozen=True)
class Comparison:
    """All of one run; `tokens` were scored, in `chunks` of `context`."""

    reference: Reference
    candidates: tuple[Candidate, ...]
    tokens: int
    chunks: int
    context: int
    seconds: float
    device: str
    activations: str


@dataclass
class _Tally:
    """Scores of one candidate, a few tokens at a time."""

    surprise: list[Scores] = field(default_factory=list)
    divergence: list[Scores] = field(default_factory=list)
    same_top: list[Scores] = field(default_factory=list)


def compare(
    reference: Path,
    candidates: Sequence[Path],
    text: Path,
    *,
    context: int = 512,
    chunks: int | None = None,
    device: str | Choice = "auto",
    progress: Progress = SILENT,
) -> Comparison:
    """Measure how far quantized models are from the one they were made of.

    Args:
        reference: the model file before quantizing.
        candidates: one or more model files with the same vocabulary.
        text: a UTF-8 file of at least two chunks of tokens.
        context: tokens a chunk, at least 4.
        chunks: how many at most; None for all.
        device: as given to `--device`; all models run on it.
        progress: told of tokens, with the first candidate's running KL.

    Raises:
        UnsupportedError: a candidate has another vocabulary.
        TextError: too short, or not text.
        EdgequantError: what `open_model` and a session raise.
    """
    content = read_text(text)
    with ExitStack() as stack:
        where = open_device(device)
        first, *others = (
            stack.enter_context(open_model(path, where, context=context))
            for path in (reference, *candidates)
        )
        for other in others:
            _check_vocabulary(first, other)
        pieces = cut(first.tokenizer, content, context=context, chunks=chunks, where=str(text))
        base: list[Scores] = []
        tallies = [_Tally() for _ in others]
        sessions = [model.session() for model in (first, *others)]
        began = time.perf_counter()
        progress.begin("compare", pieces.size, "tokens")
        for chunk in pieces:
            _score_chunk(sessions, chunk, base, tallies)
            kl = np.concatenate(tallies[0].divergence).mean()
            progress.advance(context, f"{candidates[0].name} KL {kl:.5f}")
        progress.end()
        scores = np.concatenate(base)
        found = estimate(scores).perplexity
        return Comparison(
            reference=Reference(reference.name, reference.stat().st_size, found.mean, found.error),
            candidates=tuple(
                _summarise(path, name, tally, scores)
                for path, name, tally in zip(
                    candidates, _tell_apart(candidates), tallies, strict=True
                )
            ),
            tokens=len(scores),
            chunks=len(pieces),
            context=context,
            seconds=time.perf_counter() - began,
            device=where.description,
            activations=where.activations,
        )


def _score_chunk(
    sessions: Sequence[Session], chunk: Tokens, base: list[Scores], tallies: Sequence[_Tally]
) -> None:
    """Feed a chunk to all models in lockstep and add what the scored positions give."""
    for session in sessions:
        session.rewind()
    middle = len(chunk) // 2
    start = middle + 1
    # One vocabulary, so all sessions cut their rows alike.
    scans = (session.scan(chunk[:-1], len(chunk) - 1 - middle) for session in sessions)
    for reference, *others in zip(*scans, strict=True):
        targets = chunk[start : start + len(reference)]
        start += len(reference)
        base.append(surprise(reference, targets))
        for logits, tally in zip(others, tallies, strict=True):
            tally.surprise.append(surprise(logits, targets))
            tally.divergence.append(divergence(reference, logits))
            tally.same_top.append(same_top(reference, logits))


def _tell_apart(paths: Sequence[Path]) -> tuple[str, ...]:
    """Return the files' names, or the paths where two have one name."""
    names = [path.name for path in paths]
    return tuple(names if len(set(names)) == len(names) else map(str, paths))


def _summarise(path: Path, name: str, tally: _Tally, base: Scores) -> Candidate:
    scores = np.concatenate(tally.surprise)
    kl = estimate(np.concatenate(tally.divergence))
    perplexity = estimate(scores).perplexity
    ratio = estimate(scores - base).perplexity
    return Candidate(
        name=name,
        bytes=path.stat().st_size,
        kl=kl.mean,
        kl_error=kl.error,
        perplexity=perplexity.mean,
        perplexity_error=perplexity.error,
        perplexity_ratio=ratio.mean,
        perplexity_ratio_error=ratio.error,
        same_top=float(np.concatenate(tally.same_top).mean()),
    )


def _check_vocabulary(reference: Model, other: Model) -> None:
    hint = "compare models that were quantized from the reference."
    if other.hparams.vocab != reference.hparams.vocab:
        raise UnsupportedError(
            f"{other.path}: its vocabulary has {other.hparams.vocab:,} tokens, the reference's "
            f"{reference.hparams.vocab:,}.",
            hint=hint,
        )
    key = "tokenizer.ggml.tokens"
    pairs = zip(reference.file.value(key, list), other.file.value(key, list), strict=False)
    for number, (ours, theirs) in enumerate(pairs):
        if ours != theirs:
            raise UnsupportedError(
                f"{other.path}: its token {number:,} is {theirs!r}, the reference's is {ours!r}.",
                hint=hint,
            )
