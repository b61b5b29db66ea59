"""Rows of a weight from one format to another, and what that loses.

It works on row chunks, in threads, in order; `quantize` writes what comes. It does not know files
or recipes.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from edgequant.blocks import BlockType, Bytes, Floats, Weight
from edgequant.errors import GGUFError
from edgequant.formats import dequantize, find, quantize
from edgequant.model.importance import stacked

CHUNK_WEIGHTS = 1 << 18  # 1 MiB of float32: hides Python, and 64 threads stay below 200 MB
FLOAT_TYPES = ("F32", "F16", "BF16")
_F16_LARGEST = 65504

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Loss:
    """What rounding did to some weights x, whose columns have importance q (1 where unknown).

    Attributes:
        weights: how many.
        squared: sum of (x - x̂)², float64 as the others.
        weighted: sum of q (x - x̂)².
        energy: sum of q x².
        importance: sum of q over the weights.
        clipped: weights beyond what F16 holds, if that is what they became.
    """

    weights: int = 0
    squared: float = 0.0
    weighted: float = 0.0
    energy: float = 0.0
    importance: float = 0.0
    clipped: int = 0

    def plus(self, other: "Loss") -> "Loss":
        """Return the loss of both."""
        return Loss(
            self.weights + other.weights,
            self.squared + other.squared,
            self.weighted + other.weighted,
            self.energy + other.energy,
            self.importance + other.importance,
            self.clipped + other.clipped,
        )

    @property
    def rmse(self) -> float:
        """Root of the mean squared error, in the weights' own unit."""
        return float(np.sqrt(self.squared / self.weights)) if self.weights else 0.0

    @property
    def weighted_rmse(self) -> float:
        """The same with each column weighed by its importance."""
        return float(np.sqrt(self.weighted / self.importance)) if self.importance else 0.0

    @property
    def error(self) -> float:
        """The share of the (weighed) energy that was lost; comparable between tensors."""
        return self.weighted / self.energy if self.energy else 0.0


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


def recode(chunk: Chunk) -> tuple[Bytes, Loss]:
    """Encode a chunk; bytes (rows, row bytes), as they are if the type does not change.

    Raises:
        GGUFError: a weight is not a finite number.
    """
    data = chunk.weight.data[chunk.start : chunk.stop]
    if chunk.weight.type.name not in FLOAT_TYPES:
        return data, Loss()  # `quantize` lets only such through that keep their type
    x = dequantize(find(chunk.weight.type.name), data)
    _check_finite(x, chunk)
    if chunk.type == chunk.weight.type:
        return data, Loss()
    target = find(chunk.type.name)
    encoded = quantize(target, x, chunk.importance)
    clipped = int(np.count_nonzero(np.abs(x) > _F16_LARGEST)) if chunk.type.name == "F16" else 0
    return encoded, _measure(x, dequantize(target, encoded), chunk.importance, clipped)


def _check_finite(x: Floats, chunk: Chunk) -> None:
    finite = np.isfinite(x)
    if not finite.all():
        row, column = (int(i) for i in np.argwhere(~finite)[0])
        raise GGUFError(
            f"{chunk.where}: the weight at row {chunk.start + row:,}, column {column:,} is "
            f"{x[row, column]}.",
            hint="convert the checkpoint again; if it holds this number itself, it is damaged.",
        )


def _measure(x: Floats, decoded: Floats, importance: Floats | None, clipped: int) -> Loss:
    """Sum by column in float64, then over the columns; reuses `decoded`."""
    decoded -= x
    np.square(decoded, out=decoded)
    squared = decoded.sum(axis=0, dtype=np.float64)
    np.square(x, out=decoded)
    energy = decoded.sum(axis=0, dtype=np.float64)
    q = np.ones(x.shape[1]) if importance is None else importance.astype(np.float64)
    return Loss(
        weights=x.size,
        squared=float(squared.sum()),
        weighted=float(squared @ q),
        energy=float(energy @ q),
        importance=float(q.sum()) * len(x),
        clipped=clipped,
    )


def in_order(work: Callable[[T], R], items: Iterable[T], threads: int) -> Generator[tuple[T, R]]:
    """Work on items in threads and yield (item, result) in their order, few ahead of the reader."""
    ahead: deque[tuple[T, Future[R]]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for item in items:
            ahead.append((item, pool.submit(work, item)))
            if len(ahead) > threads:
                yield _finished(ahead.popleft())
        while ahead:
            yield _finished(ahead.popleft())
    finally:
        pool.shutdown(cancel_futures=True)


def _finished(pair: tuple[T, Future[R]]) -> tuple[T, R]:
    item, future = pair
    return item, future.result()
