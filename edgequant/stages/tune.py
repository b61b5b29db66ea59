"""Quantized file + the file it was made of + text -> the same file with better levels.

Quantizing rounds each weight on its own, to the nearest level or nearly so. Here the weights of a
layer are rounded together, so that their errors cancel in what the layer makes of a text: layer by
layer, the error of its output is walked down by its gradient (`tuned` says how a level can follow
one). The layer reads what the quantized layers before it made, and is to make what the reference's
layers made of the reference's own, so it also makes up for those before it. Of the output matrix
the KL divergence of what the model says is walked down. Types, scales and size of the file stay.

Rounding by the gradient of a layer's output is AutoRound's idea (Cheng et al., "Optimize Weight
Rounding via Signed Gradient Descent", 2023), free weights instead of offsets are EfficientQAT's
(Chen et al., 2024). A prototype that moved scales too brought books-54m at 3.5 bits a weight from
.0667 nats to .0501 by the gradient of the divergence through the whole model, and to .0398 layer by
layer, both in one pass over one text. This, from half of that text: .0678 -> .0436 on other books.

The error of a token is relative to its own output, or a few tokens (sinks) would be all that
counts. Chunks are taken in an order drawn from a seed; how far the steps of a layer go together is
given, as AutoRound does, so that a short text and a long one both get there (books-6m at 3.5 bits,
57 chunks, 15 steps: held-back .250 -> .200 nats with steps of .01, .162 with .04).

Some chunks are held back, and what they say before and after is reported: of the others, even a
file that has learned them by heart would look good. They are of the same texts: what other texts
gain is less (books-54m above: held back .0693 -> .0389), and `compare` tells.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgequant.gguf.destination import check_output
from edgequant.gguf.reader import open_file
from edgequant.gguf.writer import open_output
from edgequant.progress import SILENT, Progress
from edgequant.stages.school import Course, School
from edgequant.stages.text import cut, read_text, shipped_texts, take_turns
from edgequant.tokenizer.from_gguf import read_tokenizer

COURSE = Course()


@dataclass(frozen=True)
class TuneReport:
    """What tuning did.

    Attributes:
        output: the file.
        tuned: tensors whose levels, or values, were free to move.
        changed: share of their weights that are stored otherwise now, 0..1.
        datasets: names of the texts.
        chunks: that were learned from.
        held_back: chunks that were not.
        chunk_size: tokens a chunk.
        steps: taken for each layer.
        kl_before: mean KL(reference || quantized) on the chunks held back, nats a token.
        kl_after: the same of the output.
        seconds: it took.
    """

    output: Path
    tuned: int
    changed: float
    datasets: tuple[str, ...]
    chunks: int
    held_back: int
    chunk_size: int
    steps: int
    kl_before: float
    kl_after: float
    seconds: float


def tune(
    quantized: Path,
    output: Path,
    *,
    reference: Path,
    texts: Sequence[Path] = (),
    context: int = 512,
    chunks: int | None = None,
    course: Course = COURSE,
    force: bool = False,
    progress: Progress = SILENT,
) -> TuneReport:
    """Write a quantized model file again with levels that keep it closer to its reference.

    Args:
        quantized: the model file.
        output: where to write.
        reference: the file that it was made of.
        texts: UTF-8 files, each of at least two chunks of tokens; none takes those we ship.
        context: tokens a chunk.
        chunks: how many at most, those held back included; None for all.
        course: how each layer learns.
        force: replace the output.
        progress: is told of chunks, layer by layer.

    Raises:
        UnsupportedError: the files do not belong together, or nothing of the first can be tuned.
        DeviceError: not enough memory.
        GGUFError: a file is broken, or an error is not a finite number.
        TextError: a text too short.
        FileError: a path.
    """
    began = time.monotonic()
    texts = texts or shipped_texts()
    contents = [read_text(text) for text in texts]
    check_output(output, force=force, inputs=[quantized, reference, *texts])
    with open_file(quantized) as ours, open_file(reference) as theirs:
        tokenizer = read_tokenizer(theirs.values(), str(reference))
        pieces = take_turns([
            cut(tokenizer, content, context=context, chunks=None, where=str(text))
            for text, content in zip(texts, contents, strict=True)
        ])[:chunks]  # fmt: skip
        school = School(ours, theirs, pieces, course, progress)
        school.learn()
        infos = list(ours.tensors.values())
        weights, learned = ours.weights(), school.data
        with open_output(
            output, ours.keys, infos, force=force, inputs=[quantized, reference]
        ) as out:
            for info in infos:
                out.append(info.name, learned.get(info.name, weights[info.name].data))
    return TuneReport(
        output=output,
        tuned=len(learned),
        changed=school.changed / sum(ours.tensors[name].weights for name in learned),
        datasets=tuple(text.name for text in texts),
        chunks=len(school.taught),
        held_back=len(school.held_back),
        chunk_size=context,
        steps=course.steps(len(school.taught)),
        kl_before=school.before,
        kl_after=school.after,
        seconds=time.monotonic() - began,
    )
