"""F16 model file (+ importance matrix) -> a model file in fewer bits.

Row chunks go through a few processes and are written in order, so that memory holds a few chunks
and never a tensor. All that can be known to be wrong is found before the first byte is written.

A run may be resumable: then every tensor whose bytes are on the disk is noted in a journal with
what it lost, and a killed run goes on where its journal ends. The result has the bytes of a run
that was never killed, if the same versions of this and of NumPy compute it on the same machine.
"""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np

from edgequant import __version__
from edgequant.blocks import QUANTIZATION_VERSION, Bytes, TensorInfo, Weights
from edgequant.errors import UnsupportedError
from edgequant.formats import Effort
from edgequant.gguf.destination import check_output
from edgequant.gguf.layout import Part, lay_out
from edgequant.gguf.reader import GGUFFile, open_file
from edgequant.gguf.spec import string, u32
from edgequant.gguf.writer import Output, open_output
from edgequant.model.assignment import Assignment
from edgequant.model.imatrix_file import is_importance, read_importance
from edgequant.model.importance import ImportanceMatrix
from edgequant.progress import SILENT, Progress
from edgequant.stages.loss import Loss
from edgequant.stages.quantize_plan import Source, Wish, check_wish, plan_by_recipe
from edgequant.stages.quantize_report import QuantizeReport, Timing, make_report
from edgequant.stages.quantize_target import plan_by_target
from edgequant.stages.recode import Chunk, cut, recode
from edgequant.stages.workers import Workers

SMALL = 1 << 24  # bytes of a file, below which starting processes takes longer than it saves


def quantize(
    model: Path,
    output: Path | None,
    *,
    type: str | Wish,  # noqa: A002 -- the option's name
    imatrix: Path | None = None,
    effort: Effort = Effort.DEFAULT,
    threads: int | None = None,
    force: bool = False,
    dry_run: bool = False,
    part_nbytes: int | None = None,
    resume: bool = False,
    progress: Progress = SILENT,
) -> QuantizeReport:
    """Write a model file in the formats of a recipe, or in those that lose least under a target.

    Args:
        model: a model file, in F16, BF16 or F32 unless the wish allows more.
        output: where to write; None only in a dry run.
        type: a recipe's name, such as "Q4_K_M", or a wish that says more.
        imatrix: an importance matrix of this model.
        effort: how hard to look for the least error.
        threads: how many processors to use; None takes all that this process may.
        force: replace the output.
        dry_run: plan only.
        part_nbytes: write files of at most so many bytes, named after `output`.
        resume: keep what is finished if the run is cut short, and go on from what was kept.
        progress: is told of bytes read.

    Raises:
        UnsupportedError: a wish that cannot be fulfilled.
        ImatrixError: the importance matrix is not this model's, or is needed and missing.
        GGUFError: the model file is broken, or a weight is not a finite number.
        FileError: a path.
    """
    started = time.monotonic()
    wish = type if isinstance(type, Wish) else Wish(type)
    recipe = check_wish(wish)
    inputs = [model] if imatrix is None else [model, imatrix]
    if output is not None and part_nbytes is None:
        # Whether it may exist, if a run is resumed, depends on the journal; open_output reads it.
        check_output(output, force=force or dry_run or resume, inputs=inputs)
    threads = threads or _processors()
    alone = dry_run and recipe is not None
    with (
        Workers(1 if alone or not _is_large(model) else threads) as workers,
        open_file(model) as file,
    ):
        if is_importance(file):
            raise UnsupportedError(
                f"{model}: an importance matrix, not a model file.",
                hint="name the model file first, and this one with --imatrix.",
            )
        weights = file.weights()
        infos = list(file.tensors.values())
        matrix = None
        if imatrix is not None:
            matrix = read_importance(imatrix).fitted(infos, str(imatrix))
        keys = _keys(file, imatrix, matrix)
        source = Source(model, weights, infos, {k: e.value for k, e in file.keys.items()}, matrix)

        def parts(infos: Sequence[TensorInfo]) -> tuple[Part, ...]:
            return lay_out(output or model, keys, infos, part_nbytes)

        def total(infos: Sequence[TensorInfo]) -> int:
            return sum(part.nbytes for part in parts(infos))

        if recipe is None:
            plan = plan_by_target(source, wish, total, effort, workers, progress)
        else:
            plan = plan_by_recipe(source, wish, recipe)
        keys["general.file_type"] = u32(plan.file_type)
        tensors = [a.info for a in plan.assignments]
        losses: dict[str, Loss] = {}
        files: Sequence[Path] = ()
        if dry_run and output is not None:
            files = [part.path for part in parts(tensors)]
        if not dry_run:
            if output is None:
                raise ValueError("an output is needed unless it is a dry run")
            with open_output(
                output,
                keys,
                tensors,
                force=force,
                inputs=[*inputs, *file.paths],
                part_nbytes=part_nbytes,
                resume=_bytes_depend_on(file, imatrix, effort) if resume else None,
            ) as out:
                losses = {name: Loss.of_facts(facts) for name, facts in out.finished.items()}
                rest = [a for a in plan.assignments if a.source.name not in losses]
                label = f"quantize to {plan.name}"
                progress.begin(label, sum(a.source.nbytes for a in rest), "bytes")
                work = partial(recode, effort=effort)
                done = workers.in_order(work, _chunks(weights, rest, matrix))
                losses |= _write(out, done, progress)
                progress.end()
            files = out.paths
    timing = Timing(time.monotonic() - started, workers.count)
    return make_report(plan, matrix, losses, timing, files)


def _write(
    out: Output, done: Iterable[tuple[Chunk, tuple[Bytes, Loss]]], progress: Progress
) -> dict[str, Loss]:
    """Write what comes; returns what each tensor lost, by name."""
    losses: dict[str, Loss] = {}
    for chunk, (data, loss) in done:
        name = chunk.weight.name
        out.append(name, data)
        losses[name] = losses.get(name, Loss()).plus(loss)
        if chunk.stop == chunk.weight.info.rows:
            out.record(name, losses[name].facts())
        progress.advance(chunk.nbytes, name)
    return losses


def _bytes_depend_on(file: GGUFFile, imatrix: Path | None, effort: Effort) -> dict[str, object]:
    """Say what decides the output's bytes beside its keys and types, for runs that are resumed."""
    stats = [path.stat() for path in file.paths]
    importance = "none"
    if imatrix is not None:
        importance = f"the one with SHA-256 {sha256(imatrix.read_bytes()).hexdigest()}"
    return {
        "edgequant version": __version__,
        "NumPy version": np.__version__,
        "input's size": sum(stat.st_size for stat in stats),
        "input's time of change": max(stat.st_mtime_ns for stat in stats),
        "effort": effort.value,
        "importance matrix": importance,
    }


def _is_large(model: Path) -> bool:
    try:
        return model.stat().st_size > SMALL
    except OSError:
        return False  # `open_file` says why


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _keys(
    file: GGUFFile, imatrix: Path | None, matrix: ImportanceMatrix | None
) -> dict[str, object]:
    """Copy the keys and add what llama.cpp's quantizer adds, as UINT32 and strings like it.

    The file type has its place among them; its value is the plan's.
    """
    keys: dict[str, object] = dict(file.keys)
    keys["general.quantization_version"] = u32(QUANTIZATION_VERSION)
    keys["general.file_type"] = u32(0)
    if imatrix is not None and matrix is not None:
        keys["quantize.imatrix.file"] = string(imatrix.name)
        if matrix.datasets:
            keys["quantize.imatrix.dataset"] = string(matrix.datasets[0])
        keys["quantize.imatrix.entries_count"] = u32(len(matrix.entries))
        keys["quantize.imatrix.chunks_count"] = u32(matrix.chunk_count)
    return keys


def _chunks(
    weights: Weights, plan: Sequence[Assignment], matrix: ImportanceMatrix | None
) -> Iterator[Chunk]:
    for a in plan:
        name = a.source.name
        importance = None if matrix is None else matrix.mean(name)
        yield from cut(weights[name], a.type, importance, f"{weights.path}: '{name}'")
