"""Importance matrix files: llama.cpp's GGUF form read and written, its older form read.

Two tensors a weight, `NAME.in_sum2` (matrices, columns) and `NAME.counts` (matrices, 1), sorted by
name, and three keys. What is read is checked here once, so that nobody else has to: finite, not
negative, and sizes that agree.

Source: common/imatrix-loader.cpp and tools/imatrix/imatrix.cpp of llama.cpp 0c1e57098.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgequant.blocks import BLOCK_TYPES, Floats, TensorInfo
from edgequant.errors import FileError, ImatrixError
from edgequant.gguf.reader import GGUFFile, open_file
from edgequant.gguf.spec import MAGIC, KeyValue, ValueType, array, string, u32
from edgequant.gguf.writer import open_output
from edgequant.model.imatrix_legacy import read_legacy
from edgequant.model.importance import Entry, ImportanceMatrix

SUMS, COUNTS = ".in_sum2", ".counts"  # what follows a weight's name
_HINT = "make the file again, with edgequant imatrix or llama-imatrix."


def is_importance(file: GGUFFile) -> bool:
    """Tell whether a GGUF file says that it is an importance matrix."""
    kind = file.keys.get("general.type")
    return kind is not None and kind.value == "imatrix"


def read_importance(path: Path) -> ImportanceMatrix:
    """Read an importance matrix file of either form.

    Raises:
        ImatrixError: not such a file, cut short, or with numbers that cannot be.
        GGUFError: a GGUF file that is broken as such.
        FileError: no such file.
    """
    try:
        with path.open("rb") as file:
            is_gguf = file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise FileError(
            f"{path}: {error.strerror}.", hint="name the file that edgequant imatrix wrote."
        ) from error
    matrix = _read_gguf(path) if is_gguf else read_legacy(path)
    for name, entry in matrix.entries.items():
        for values, what in ((entry.in_sum2, "sum of squares"), (entry.counts, "count")):
            wrong = ~(np.isfinite(values) & (values >= 0))
            if wrong.any():
                raise ImatrixError(
                    f"{path}: '{name}' has a {what} of {values[wrong][0]} "
                    f"at {int(np.flatnonzero(wrong)[0]):,}.",
                    hint=_HINT,
                )
    return matrix


def _read_gguf(path: Path) -> ImportanceMatrix:
    with open_file(path) as file:
        if not is_importance(file):
            raise ImatrixError(
                f"{path}: a GGUF file, but not an importance matrix.",
                hint="name the file that edgequant imatrix wrote.",
            )
        names = [name.removesuffix(SUMS) for name in file.tensors if name.endswith(SUMS)]
        if not names:
            raise ImatrixError(f"{path}: an importance matrix of 0 entries.", hint=_HINT)
        datasets = file.value("imatrix.datasets", list, default=[])
        return ImportanceMatrix(
            entries={name: _read_entry(file, name) for name in sorted(names)},
            datasets=tuple(str(text) for text in datasets),
            chunk_count=file.value("imatrix.chunk_count", int),
            chunk_size=file.value("imatrix.chunk_size", int),
        )


def _read_entry(file: GGUFFile, name: str) -> Entry:
    sums, counts = (_read_floats(file, name + suffix) for suffix in (SUMS, COUNTS))
    matrices = sums.shape[0]
    if counts.size not in (1, matrices):
        raise ImatrixError(
            f"{file.path}: '{name}' has {counts.size:,} counts for {matrices:,} matrices.",
            hint=_HINT,
        )
    return Entry(sums, np.broadcast_to(counts.reshape(-1), (matrices,)).copy())


def _read_floats(file: GGUFFile, name: str) -> Floats:
    """Return a tensor as (rows, columns), in memory, so that the file can be closed."""
    weight = file.weights().get(name)
    if weight is None:
        raise ImatrixError(f"{file.path}: '{name}' is missing.", hint=_HINT)
    if weight.type.name != "F32" or not weight.info.weights:
        raise ImatrixError(
            f"{file.path}: '{name}' is {weight.type.name} of {weight.info.weights:,} values, "
            "not F32 of 1 or more.",
            hint=_HINT,
        )
    return np.ascontiguousarray(weight.data).view("<f4").astype(np.float32)


def write_importance(
    path: Path, matrix: ImportanceMatrix, *, force: bool = False, inputs: Sequence[Path] = ()
) -> None:
    """Write the GGUF form, whole or not at all.

    Args:
        path: the file.
        matrix: what to write; its chunk size must be known.
        force: replace a file that is there.
        inputs: files that must not be written over.

    Raises:
        FileError: the file exists and `force` is not given, or it cannot be written.
    """
    if matrix.chunk_size is None:
        raise ValueError("the chunk size of a legacy file is not known")
    keys: dict[str, KeyValue] = {
        "general.type": string("imatrix"),
        "imatrix.datasets": array(ValueType.STRING, list(matrix.datasets)),
        "imatrix.chunk_count": u32(matrix.chunk_count),
        "imatrix.chunk_size": u32(matrix.chunk_size),
    }
    tensors: dict[str, Floats] = {}
    for name, entry in sorted(matrix.entries.items(), key=lambda item: item[0].encode()):
        dense = entry.counts.size == 1
        tensors[name + SUMS] = entry.in_sum2[0] if dense else entry.in_sum2
        tensors[name + COUNTS] = entry.counts if dense else entry.counts[:, None]
    infos = [TensorInfo(name, BLOCK_TYPES["F32"], t.shape) for name, t in tensors.items()]
    with open_output(path, keys, infos, force=force, inputs=inputs) as output:
        for info in infos:
            values = np.ascontiguousarray(tensors[info.name], "<f4")
            output.append(info.name, values.view(np.uint8).reshape(info.rows, -1))
