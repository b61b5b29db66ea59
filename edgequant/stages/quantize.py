"""F16 model file (+ importance matrix) -> a model file in fewer bits.

Row chunks go through a pool of threads and are written in order, so that memory holds a few chunks
and never a tensor. All that can be known to be wrong is found before the first byte is written.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from edgequant.blocks import QUANTIZATION_VERSION, TensorInfo, Weights
from edgequant.errors import UnsupportedError, some
from edgequant.formats import find
from edgequant.gguf.destination import check_output
from edgequant.gguf.reader import GGUFFile, open_file
from edgequant.gguf.spec import string, u32
from edgequant.gguf.writer import Output, open_output
from edgequant.model.assignment import Assignment, assign, read_sizes
from edgequant.model.imatrix_file import is_importance, read_importance
from edgequant.model.importance import ImportanceMatrix
from edgequant.model.recipes import Recipe, find_recipe
from edgequant.progress import SILENT, Progress
from edgequant.stages.quantize_report import QuantizeReport, Timing, make_report
from edgequant.stages.recode import FLOAT_TYPES, Chunk, Loss, cut, in_order, recode


def quantize(
    model: Path,
    output: Path | None,
    *,
    type: str,  # noqa: A002 -- the option's name
    imatrix: Path | None = None,
    threads: int | None = None,
    strict: bool = False,
    force: bool = False,
    dry_run: bool = False,
    progress: Progress = SILENT,
) -> QuantizeReport:
    """Write a model file in the formats of a recipe.

    Args:
        model: an F16, BF16 or F32 model file.
        output: where to write; None only in a dry run.
        type: a recipe's name, such as "Q4_K_M".
        imatrix: an importance matrix of this model.
        threads: None takes all the process may use.
        strict: a tensor whose rows do not fit the recipe's format is an error.
        force: replace the output.
        dry_run: plan only.
        progress: is told of bytes read.

    Raises:
        UnsupportedError: unknown recipe, an input that is quantized already, a fallback in strict.
        ImatrixError: the importance matrix is not this model's.
        GGUFError: the model file is broken, or a weight is not a finite number.
        FileError: a path.
    """
    started = time.monotonic()
    recipe = find_recipe(type)
    inputs = [model] if imatrix is None else [model, imatrix]
    if output is not None:
        check_output(output, force=force or dry_run, inputs=inputs)
    threads = threads or _processors()
    with open_file(model) as file:
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
        plan = _plan(file, recipe, infos, imatrix=matrix is not None)
        _check_plan(model, plan, strict)
        losses: dict[str, Loss] = {}
        if not dry_run:
            if output is None:
                raise ValueError("an output is needed unless it is a dry run")
            keys = _keys(file, recipe, imatrix, matrix)
            with open_output(
                output, keys, [a.info for a in plan], force=force, inputs=inputs
            ) as out:
                progress.begin(f"quantize to {recipe.name}", sum(i.nbytes for i in infos), "bytes")
                losses = _write(out, _chunks(weights, plan, matrix), threads, progress)
                progress.end()
    timing = Timing(time.monotonic() - started, threads)
    return make_report(recipe.name, plan, matrix, losses, timing)


def _write(
    out: Output, chunks: Iterator[Chunk], threads: int, progress: Progress
) -> dict[str, Loss]:
    """Encode in threads, write in order; returns what each tensor lost, by name."""
    losses: dict[str, Loss] = {}
    with closing(in_order(recode, chunks, threads)) as results:  # ends the threads on any error
        for chunk, (data, loss) in results:
            name = chunk.weight.name
            out.append(name, data)
            losses[name] = losses.get(name, Loss()).plus(loss)
            progress.advance(chunk.nbytes, name)
    return losses


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _plan(
    file: GGUFFile, recipe: Recipe, infos: Sequence[TensorInfo], *, imatrix: bool
) -> tuple[Assignment, ...]:
    values = {key: entry.value for key, entry in file.keys.items()}
    return assign(recipe, infos, read_sizes(values, infos), imatrix=imatrix)


def _check_plan(model: Path, plan: Sequence[Assignment], strict: bool) -> None:
    for a in plan:
        if a.type != a.source.type and a.source.type.name not in FLOAT_TYPES:
            raise UnsupportedError(
                f"{model}: '{a.source.name}' is {a.source.type.name} and would become "
                f"{a.type.name}; rounding twice loses more than once.",
                hint="start from the F16 or BF16 file that edgequant convert writes.",
            )
        find(a.type.name)  # every format of a recipe must be one that we can encode
    odd = [f"{a.source.name} ({a.source.columns} columns, {a.fallback_from} -> {a.type.name})"
           for a in plan if a.fallback_from]  # fmt: skip
    if odd and strict:
        raise UnsupportedError(
            f"{model}: rows of {len(odd):,} tensors are not whole blocks: {some(odd, 8)}.",
            hint="leave out --strict, or choose a --type with smaller blocks, such as Q8_0.",
        )


def _keys(
    file: GGUFFile, recipe: Recipe, imatrix: Path | None, matrix: ImportanceMatrix | None
) -> dict[str, object]:
    """Copy the keys and add what llama.cpp's quantizer adds, as UINT32 and strings like it."""
    keys: dict[str, object] = dict(file.keys)
    keys["general.quantization_version"] = u32(QUANTIZATION_VERSION)
    keys["general.file_type"] = u32(recipe.file_type)
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
