"""Rows of a weight from one format to another, and what that loses.

It works on row chunks; `workers` shares them out, `quantize` writes what comes. It does not know
files or recipes.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgequant.blocks import BlockType, Bytes, Floats, Weight
from edgequant.errors import GGUFError
from edgequant.formats import Effort, Encoder, dequantize, find
from edgequant.model.importance import stacked
from edgequant.stages.loss import Loss, Meter

CHUNK_WEIGHTS = 9 << 16  # 1.1 MiB of F16: a worker computes 4 ms or more and waits 0.1 for the next
PIECE_WEIGHTS = 3 << 15  # 384 KiB of float32: read, encoded, decoded and compared in a core's cache
FLOAT_TYPES = ("F32", "F16", "BF16")
_F16_LARGEST = 65504


@dataclass(frozen=True)
class Chunk:
    """Rows start..stop of one matrix of a weight, and what they are to become.

    `importance` is (columns,), that of the matrix; `where` names the tensor in messages.
    """

    weight: Weight
    type: BlockType
    start: int
    stop: int
    importance: Floats | None
    where: str

    @property
    def nbytes(self) -> int:
        """Bytes of its rows as they are in the input."""
        info = self.weight.info
        return (self.stop - self.start) * info.type.row_nbytes(info.columns)


def cut(weight: Weight, block: BlockType, importance: Floats | None, where: str) -> Iterator[Chunk]:
    """Cut a weight into chunks of about `CHUNK_WEIGHTS`, none across two experts.

    Args:
        weight: of any shape.
        block: the type it is to have.
        importance: (matrices, columns) or None.
        where: its name in messages.
    """
    info = weight.info
    matrices = stacked(info)
    rows = info.rows // matrices
    step = max(1, CHUNK_WEIGHTS // max(1, info.columns))
    for matrix in range(matrices):
        weighing = None if importance is None else importance[matrix]
        first, last = matrix * rows, (matrix + 1) * rows
        for start in range(first, last, step):
            yield Chunk(weight, block, start, min(start + step, last), weighing, where)


def recode(chunk: Chunk, effort: Effort = Effort.DEFAULT) -> tuple[Bytes, Loss]:
    """Encode a chunk; bytes (rows, row bytes), as they are if the type does not change.

    Raises:
        GGUFError: a weight is not a finite number, or larger than F16 can hold.
    """
    data = chunk.weight.data[chunk.start : chunk.stop]
    same = chunk.type == chunk.weight.type
    if same and chunk.weight.type.name not in FLOAT_TYPES:
        return data, Loss()
    source, target = find(chunk.weight.type.name), find(chunk.type.name)
    columns = chunk.weight.info.columns
    encoder = Encoder(target, chunk.importance, effort)
    meter = Meter(
        columns, chunk.type.weights if chunk.type.weights > 1 else columns, chunk.importance
    )
    encoded = data if same else np.empty((len(data), chunk.type.row_nbytes(columns)), np.uint8)
    step = max(1, PIECE_WEIGHTS // max(1, columns))
    for first in range(0, len(data), step):
        x = dequantize(source, data[first : first + step])
        check_finite(x, chunk.start + first + np.arange(len(x)), chunk.where)
        if same:
            continue
        if chunk.type.name == "F16":
            _check_f16(x, chunk.start + first + np.arange(len(x)), chunk.where)
        piece = encoder.encode(x)
        encoded[first : first + step] = piece
        meter.add(x, dequantize(target, piece), chunk.start + first)
    return encoded, meter.loss()


def check_finite(x: Floats, rows: NDArray[np.int64], where: str) -> None:
    """Refuse NaN and infinities.

    Args:
        x: (rows, columns).
        rows: of the tensor, for the message.
        where: its name.

    Raises:
        GGUFError: names the first.
    """
    finite = np.isfinite(x)
    if not finite.all():
        row, column = (int(i) for i in np.argwhere(~finite)[0])
        raise GGUFError(
            f"{where}: the weight at row {rows[row]:,}, column {column:,} is {x[row, column]}.",
            hint="convert the checkpoint again; if it holds this number itself, it is damaged.",
        )


def _check_f16(x: Floats, rows: NDArray[np.int64], where: str) -> None:
    """Refuse what F16 would hold as an infinity."""
    if np.abs(x).max(initial=0) > _F16_LARGEST:
        row, column = (int(i) for i in np.argwhere(np.abs(x) > _F16_LARGEST)[0])
        raise GGUFError(
            f"{where}: the weight at row {rows[row]:,}, column {column:,} is {x[row, column]}, "
            f"beyond F16's {_F16_LARGEST:,}.",
            hint="choose --type BF16, or --tensor-type 'NAME=BF16' for this tensor.",
        )
