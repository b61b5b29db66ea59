"""Model file + text -> importance matrix: what each linear layer's inputs look like.

llama-imatrix's protocol: each text is tokenized once and cut into chunks without overlap, every
chunk starts on an empty cache, and the squares of every linear layer's input are summed over all
tokens. Several texts take turns, chunk by chunk, so that a few chunks see something of each.

Source: tools/imatrix/imatrix.cpp of llama.cpp 0c1e57098, which reads one text.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgequant.device import open_device
from edgequant.device.protocol import Observer, Sums
from edgequant.errors import ImatrixError
from edgequant.gguf.destination import check_output
from edgequant.model.imatrix_file import read_importance, write_importance
from edgequant.model.importance import Entry, ImportanceMatrix
from edgequant.progress import SILENT, Progress
from edgequant.runtime.model import Model, open_model
from edgequant.stages.tally import Tally
from edgequant.stages.text import cut, read_text, shipped_texts, take_turns

SAVE_EVERY = 10  # chunks, as llama-imatrix's --output-frequency


@dataclass(frozen=True)
class Coverage:
    """How well the text covered one weight.

    Attributes:
        name: of the weight.
        tokens: that reached it; for experts, the one that saw fewest.
        columns: of the weight.
        zero_share: share of columns whose input was always zero, 0..1.
    """

    name: str
    tokens: int
    columns: int
    zero_share: float


@dataclass(frozen=True)
class ImatrixReport:
    """What was collected.

    Attributes:
        output: the file.
        entries: one a weight, by name.
        datasets: names of the texts.
        chunks: in the file now.
        resumed_from: chunks that were in it before.
        chunk_size: tokens a chunk.
        tokens: that this run fed.
        seconds: it took, without loading.
        tokens_per_second: of this run.
        device: its description.
        activations: what the inputs of linear layers were rounded to.
    """

    output: Path
    entries: tuple[Coverage, ...]
    datasets: tuple[str, ...]
    chunks: int
    resumed_from: int
    chunk_size: int
    tokens: int
    seconds: float
    tokens_per_second: float
    device: str
    activations: str


def collect(
    path: Path,
    output: Path,
    *,
    texts: Sequence[Path] = (),
    context: int = 512,
    chunks: int | None = None,
    device: str = "auto",
    resume: bool = False,
    process_output: bool = False,
    force: bool = False,
    progress: Progress = SILENT,
) -> ImatrixReport:
    """Collect an importance matrix.

    An interrupt keeps what was done: the file then holds fewer chunks, and `resume` goes on.

    Args:
        path: the model file.
        output: the importance matrix file.
        texts: UTF-8 files, each of at least two chunks of tokens; none takes those we ship.
        context: tokens a chunk.
        chunks: how many at most, those of a resumed file included; None for all.
        device: as given to `--device`; it must be able to observe.
        resume: go on after the chunks that `output` holds.
        process_output: collect the output layer's input too.
        force: replace the output.
        progress: is told of tokens.

    Raises:
        ImatrixError: the file to resume is of another model, text or chunk size, or complete; or
            an activation is not finite.
        TextError: a text too short.
        EdgequantError: what `open_device` and `open_model` raise.
    """
    texts = texts or shipped_texts()
    contents = [read_text(text) for text in texts]
    check_output(output, force=force or resume, inputs=[path, *texts])
    earlier = read_importance(output) if resume else None
    names = tuple(text.name for text in texts)
    with open_model(path, open_device(device, observe=True), context=context) as model:
        tally = Tally()
        if earlier is not None:
            _check_same_run(output, earlier, names, context)
            tally = Tally.of(earlier.fitted(list(model.file.tensors.values()), str(output)))
        done = tally.chunks
        pieces = take_turns([
            cut(model.tokenizer, content, context=context, chunks=None, where=str(text))
            for text, content in zip(texts, contents, strict=True)
        ])[:chunks]  # fmt: skip
        if done >= len(pieces):
            raise ImatrixError(
                f"{output}: holds {done:,} chunks, and no more than {len(pieces):,} are to be had.",
                hint="ask for more with --chunks, or start a new file with more text.",
            )
        save = _Save(output, names, context, replace=force or resume, inputs=[path, *texts])
        began = time.perf_counter()
        tally = _feed(model, pieces, tally, save, process_output, progress)
        seconds = time.perf_counter() - began
        matrix = save(tally)
        tokens = (tally.chunks - done) * context
        return ImatrixReport(
            output=output,
            entries=tuple(_cover(name, entry) for name, entry in matrix.entries.items()),
            datasets=names,
            chunks=tally.chunks,
            resumed_from=done,
            chunk_size=context,
            tokens=tokens,
            seconds=seconds,
            tokens_per_second=tokens / seconds,
            device=model.device.description,
            activations=model.device.activations,
        )


def _check_same_run(
    output: Path, earlier: ImportanceMatrix, names: tuple[str, ...], context: int
) -> None:
    if earlier.chunk_size != context:
        size = "unknown size" if earlier.chunk_size is None else f"{earlier.chunk_size:,} tokens"
        raise ImatrixError(
            f"{output}: has chunks of {size}, not of {context:,}.",
            hint="resume with the --ctx it was made with, or start a new file.",
        )
    if earlier.datasets != names:
        raise ImatrixError(
            f"{output}: is of {', '.join(earlier.datasets)}, not of {', '.join(names)}.",
            hint="resume with the same texts in the same order, or start a new file.",
        )


def _feed(
    model: Model,
    pieces: Sequence[NDArray[np.int32]],
    tally: Tally,
    save: "_Save",
    process_output: bool,
    progress: Progress,
) -> Tally:
    """Add the chunks that the tally lacks; an interrupt saves those that are whole and goes on."""
    done, context = tally.chunks, len(pieces[0])
    progress.begin("imatrix", (len(pieces) - done) * context, "tokens")
    try:
        for chunk in pieces[done:]:
            tally = tally.plus(_observe(model, chunk, process_output), str(model.path))
            progress.advance(context, f"chunk {tally.chunks} of {len(pieces)}")
            if tally.chunks % SAVE_EVERY == 0 and tally.chunks < len(pieces):
                save(tally)
    except KeyboardInterrupt:
        progress.end()
        if tally.chunks > done:
            save(tally)
            progress.say(
                f"{save.output}: holds {tally.chunks:,} of {len(pieces):,} chunks; "
                "the same command with --resume goes on from there."
            )
        raise
    progress.end()
    return tally


def _observe(model: Model, chunk: NDArray[np.int32], process_output: bool) -> dict[str, Sums]:
    """Feed a chunk and keep what llama-imatrix keeps: the layers, and if wanted the output."""
    assert isinstance(model.program, Observer)  # the device was opened to observe
    return {
        name: sums
        for name, sums in model.program.observe(chunk, 0).items()
        if name.startswith("blk.") or (process_output and name == "output.weight")
    }


@dataclass
class _Save:
    """Writes a tally; replaces a file only where that was allowed, or is its own."""

    output: Path
    names: tuple[str, ...]
    context: int
    replace: bool
    inputs: Sequence[Path]

    def __call__(self, tally: Tally) -> ImportanceMatrix:
        matrix = tally.matrix(self.names, self.context)
        write_importance(self.output, matrix, force=self.replace, inputs=self.inputs)
        self.replace = True
        return matrix


def _cover(name: str, entry: Entry) -> Coverage:
    return Coverage(name, int(entry.counts.min()), entry.in_sum2.shape[1], entry.zero_share)
