"""How well a model predicts a text, by llama-perplexity's protocol.

The text is cut into chunks (see `text`), each starts on an empty cache, and its second half is
scored: positions context/2 to context - 2, each against the token after it.

Source: perplexity.cpp, llama.cpp 0c1e57098.
"""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgequant.device import Choice, open_device
from edgequant.progress import SILENT, Progress
from edgequant.runtime.model import open_model
from edgequant.stages.scores import Estimate, Scores, estimate, surprise
from edgequant.stages.text import cut, read_text


@dataclass(frozen=True)
class Perplexity:
    """A measurement.

    Attributes:
        perplexity: exp of the mean negative log-likelihood.
        error: its standard error.
        tokens: how many were scored.
        seconds: without loading and tokenizing.
        chunks: how many, of `context` tokens each.
        context: tokens a chunk.
        device: its description.
        activations: what the inputs of linear layers were rounded to.
    """

    perplexity: float
    error: float
    tokens: int
    seconds: float
    chunks: int
    context: int
    device: str
    activations: str


def measure_perplexity(
    path: Path,
    text: Path,
    *,
    context: int = 512,
    chunks: int | None = None,
    device: str | Choice = "auto",
    progress: Progress = SILENT,
) -> Perplexity:
    """Measure a model's perplexity on a text.

    Args:
        path: the model file.
        text: a UTF-8 file of at least two chunks of tokens.
        context: tokens a chunk, at least 4.
        chunks: how many at most; None for all.
        device: as given to `--device`, or with its options.
        progress: told of tokens, with the running perplexity.

    Raises:
        TextError: too short, or not text.
        EdgequantError: what `open_model` and a session raise.
    """
    content = read_text(text)
    with open_model(path, open_device(device), context=context) as model:
        pieces = cut(model.tokenizer, content, context=context, chunks=chunks, where=str(text))
        session = model.session()
        scores = []
        first = context // 2
        began = time.perf_counter()
        progress.begin("perplexity", pieces.size, "tokens")
        for chunk in pieces:
            session.rewind()
            start = first + 1
            for logits in session.scan(chunk[:-1], context - 1 - first):
                scores.append(surprise(logits, chunk[start : start + len(logits)]))
                start += len(logits)
            progress.advance(context, f"PPL {_perplexity(scores).mean:.4f}")
        progress.end()
        seconds = time.perf_counter() - began
        result = _perplexity(scores)
        return Perplexity(
            perplexity=result.mean,
            error=result.error,
            tokens=sum(map(len, scores)),
            seconds=seconds,
            chunks=len(pieces),
            context=context,
            device=model.device.description,
            activations=model.device.activations,
        )


def _perplexity(scores: list[Scores]) -> Estimate:
    return estimate(np.concatenate(scores)).perplexity
