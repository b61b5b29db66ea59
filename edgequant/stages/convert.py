"""Checkpoint directory or Hub id -> F16, BF16 or F32 model file.

Everything that can be known without reading weights is checked first: the config, the tokenizer,
every tensor's name and shape, the output path. Weights then pass in chunks of a few megabytes,
whatever the model's size.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from edgequant.blocks import BLOCK_TYPES, QUANTIZATION_VERSION, TensorInfo
from edgequant.gguf.destination import check_output
from edgequant.gguf.writer import open_output
from edgequant.model.registry import read_config
from edgequant.model.tensors import Role
from edgequant.progress import SILENT, Progress
from edgequant.source.checkpoint import Checkpoint, open_checkpoint
from edgequant.stages.float_rows import chunks, encode, narrowest
from edgequant.stages.pairing import Pair, pair_tensors
from edgequant.tokenizer.to_gguf import tokenizer_keys

# general.file_type. Source: llama_ftype, llama.h at llama.cpp 0c1e57098.
FILE_TYPES = {"F32": 0, "F16": 1, "BF16": 32}
_ALWAYS_F32 = {Role.FFN_ROUTER}  # as llama.cpp's converter has it


@dataclass(frozen=True)
class ConvertReport:
    """What a conversion wrote.

    Attributes:
        output: the model file.
        architecture: general.architecture.
        outtype: the float type of its matrices: F16, BF16 or F32.
        tensors: how many.
        parameters: weights in all of them.
        bytes: size of the file.
        seconds: that it took, without a download.
        notes: what was ignored or decided, one sentence each.
    """

    output: Path
    architecture: str
    outtype: str
    tensors: int
    parameters: int
    bytes: int
    seconds: float
    notes: tuple[str, ...]


def convert(
    checkpoint: str,
    output: Path,
    *,
    outtype: str = "f16",
    force: bool = False,
    progress: Progress = SILENT,
) -> ConvertReport:
    """Write a checkpoint as a GGUF model file.

    Args:
        checkpoint: a directory, or a Hub id `owner/name[@revision]`.
        output: the file to write; it appears whole or not at all.
        outtype: of the matrices: "f16", "bf16", "f32", or "auto" for that of the checkpoint, with
            F32 rounded to BF16. One-dimensional tensors are F32. A tensor with weights that a type
            cannot hold is kept in a wider one, and noted.
        force: replace an existing file.
        progress: told of the download, the check and the writing.

    Raises:
        CheckpointError: of files that are missing, broken or contradictory, and of weights that
            are not finite.
        UnsupportedError: of a model, tokenizer or float type that is not done.
        FileError: of the output.
    """
    source = open_checkpoint(checkpoint, progress)
    started = time.monotonic()
    check_output(output, force=force, inputs=source.files)
    where = str(source.directory)
    architecture, h = read_config(source.config, f"{where}/config.json")
    pairing = pair_tensors(
        architecture,
        h,
        source.tensors,
        tie_stated="tie_word_embeddings" in source.config,
        where=where,
    )
    matrix_type = _matrix_type(source, outtype)
    keys = {
        "general.architecture": architecture.name,
        "general.type": "model",
        "general.name": source.name,
        "general.file_type": FILE_TYPES[matrix_type],
        "general.quantization_version": QUANTIZATION_VERSION,
        **pairing.hparams.to_keys(architecture.name),
        **tokenizer_keys(source.directory, pairing.hparams.vocab),
    }
    notes = [*source.notes, *pairing.notes]
    infos = _choose_types(pairing.pairs, matrix_type, notes, progress)
    _write(output, keys, pairing.pairs, infos, force, source.files, progress)
    return ConvertReport(
        output=output,
        architecture=architecture.name,
        outtype=matrix_type,
        tensors=len(infos),
        parameters=sum(info.weights for info in infos),
        bytes=output.stat().st_size,
        seconds=time.monotonic() - started,
        notes=tuple(notes),
    )


def _matrix_type(source: Checkpoint, outtype: str) -> str:
    if outtype != "auto":
        return outtype.upper()
    first = next(iter(source.tensors.values()))
    return "F16" if first.dtype == np.float16 else "BF16"


def _choose_types(
    pairs: Sequence[Pair], matrix_type: str, notes: list[str], progress: Progress
) -> list[TensorInfo]:
    """Choose each tensor's float type, reading those that might not fit the one asked for."""
    infos = []
    progress.begin("check", sum(_nbytes(pair) for pair in pairs), "bytes")
    try:
        for pair in pairs:
            spec = pair.spec
            name = "F32"
            if len(spec.shape) > 1 and spec.role not in _ALWAYS_F32 and pair.source is not None:
                name = narrowest(pair.source, matrix_type)
                if name != matrix_type:
                    notes.append(f"'{spec.name}' is kept in {name}: beyond {matrix_type}'s range")
            infos.append(TensorInfo(spec.name, BLOCK_TYPES[name], spec.shape))
            progress.advance(_nbytes(pair), spec.name)
    finally:
        progress.end()
    return infos


def _write(
    output: Path,
    keys: Mapping[str, object],
    pairs: Sequence[Pair],
    infos: Sequence[TensorInfo],
    force: bool,
    inputs: Sequence[Path],
    progress: Progress,
) -> None:
    with open_output(output, keys, infos, force=force, inputs=inputs) as file:
        progress.begin("convert", sum(info.nbytes for info in infos), "bytes")
        try:
            for pair, info in zip(pairs, infos, strict=True):
                for start, stop in chunks(info.shape):
                    rows = encode(pair.read(start, stop), info.type.name)
                    file.append(info.name, rows)
                    progress.advance(rows.nbytes, info.name)
        finally:
            progress.end()


def _nbytes(pair: Pair) -> int:
    return prod(pair.spec.shape) * (4 if pair.source is None else pair.source.dtype.itemsize)
