"""Rows of a weight from one format to another, and what that loses.

It works on row chunks, in threads, in order; `quantize` writes what comes. It does not know files
or recipes.

Where the GIL binds: NumPy lets go of it inside a call on more than a few hundred numbers, so that
threads run at once there; Python between the calls, and what a call does before it loops, hold it.
How long, tells a chunk of two blocks, which is nothing else: 0.1 ms for Q8_0, 0.4 for Q6_K, 0.8 for
IQ4_XS, 1.3 for Q4_K, which is 17 to 30% of what 2^16 weights take (0.45, 2.4, 4.6 and 5 ms; one
core of a 2023 Xeon, CPU time). As encoders cut a chunk into pieces of `ENCODE_WEIGHTS` and pay it
for each, about ENCODE_WEIGHTS / 2^14 threads can be busy at once; more wait for the GIL.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from edgequant.blocks import BlockType, Bytes, Floats, Weight
from edgequant.errors import GGUFError
from edgequant.formats import Effort, dequantize, find, quantize
from edgequant.model.importance import stacked

CHUNK_WEIGHTS = 1 << 18  # 1 MiB of float32: hides Python, and 64 threads stay below 200 MB
FLOAT_TYPES = ("F32", "F16", "BF16")
_F16_LARGEST = 65504

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class BlockLoss:
    """What rounding did to one block; of a type without blocks, to one row.

    Attributes:
        row: of the tensor, its matrices one after the other.
        block: of the row.
        weights: of the block.
        squared: sum of (x - x̂)².
        weighted: sum of q (x - x̂)².
    """

    row: int
    block: int
    weights: int
    squared: float
    weighted: float


@dataclass(frozen=True)
class Loss:
    """What rounding did to some weights x, whose columns have importance q (1 where unknown).

    Attributes:
        weights: how many.
        squared: sum of (x - x̂)², float64 as the others.
        weighted: sum of q (x - x̂)².
        energy: sum of q x².
        importance: sum of q over the weights.
        worst: the block with the largest `weighted`; None if nothing was lost.
    """

    weights: int = 0
    squared: float = 0.0
    weighted: float = 0.0
    energy: float = 0.0
    importance: float = 0.0
    worst: BlockLoss | None = None

    def plus(self, other: "Loss") -> "Loss":
        """Return the loss of both."""
        return Loss(
            self.weights + other.weights,
            self.squared + other.squared,
            self.weighted + other.weighted,
            self.energy + other.energy,
            self.importance + other.importance,
            max((self.worst, other.worst), key=lambda b: 0.0 if b is None else b.weighted),
        )

    def facts(self) -> dict[str, object]:
        """Return it as JSON can hold it."""
        return asdict(self)

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any]) -> Self:
        """Return what `facts` was made of."""
        worst = facts["worst"]
        return cls(**{**facts, "worst": None if worst is None else BlockLoss(**worst)})

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


def recode(chunk: Chunk, effort: Effort = Effort.DEFAULT) -> tuple[Bytes, Loss]:
    """Encode a chunk; bytes (rows, row bytes), as they are if the type does not change.

    Raises:
        GGUFError: a weight is not a finite number, or larger than F16 can hold.
    """
    data = chunk.weight.data[chunk.start : chunk.stop]
    same = chunk.type == chunk.weight.type
    if same and chunk.weight.type.name not in FLOAT_TYPES:
        return data, Loss()
    x = dequantize(find(chunk.weight.type.name), data)
    rows = np.arange(chunk.start, chunk.stop)
    check_finite(x, rows, chunk.where)
    if same:
        return data, Loss()
    if chunk.type.name == "F16":
        _check_f16(x, rows, chunk.where)
    target = find(chunk.type.name)
    encoded = quantize(target, x, chunk.importance, effort=effort)
    return encoded, _measure(x, dequantize(target, encoded), chunk)


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


def _measure(x: Floats, decoded: Floats, chunk: Chunk) -> Loss:
    """Sum over blocks in float32, then over all in float64; reuses `decoded`.

    einsum, because it weighs and sums in one pass: 0.2 ns a weight, where `sum` over a last axis of
    32 alone takes 0.6.
    """
    rows, columns = x.shape
    size = chunk.type.weights if chunk.type.weights > 1 else columns
    blocks = (rows, columns // size, size)
    q = np.ones(columns, np.float32) if chunk.importance is None else chunk.importance
    q = np.ascontiguousarray(q, np.float32).reshape(blocks[1:])
    decoded -= x
    errors = np.square(decoded, out=decoded).reshape(blocks)
    squared, weighted = np.einsum("rbk->rb", errors), np.einsum("rbk,bk->rb", errors, q)
    row, block = divmod(int(weighted.argmax()), blocks[1])
    worst = BlockLoss(
        row=chunk.start + row,
        block=block,
        weights=size,
        squared=float(squared[row, block]),
        weighted=float(weighted[row, block]),
    )
    energy = np.einsum("rbk,bk->rb", np.square(x, out=decoded).reshape(blocks), q)
    return Loss(
        weights=x.size,
        squared=float(squared.sum(dtype=np.float64)),
        weighted=float(weighted.sum(dtype=np.float64)),
        energy=float(energy.sum(dtype=np.float64)),
        importance=float(q.sum(dtype=np.float64)) * rows,
        worst=worst if worst.weighted else None,
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
