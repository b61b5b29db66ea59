"""Rows of float weights on their way through conversion: chunked, checked, encoded.

The largest magnitude of a chunk is taken from its bits, which is an order of magnitude faster than
computing in a 16-bit type. It knows the three float types and no file.
"""

from collections.abc import Iterator

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from edgequant.blocks import Bytes, LazyTensor
from edgequant.errors import CheckpointError
from edgequant.model.tensors import Read
from edgequant.source.shard import DTYPES

CHUNK_WEIGHTS = 1 << 20

# What a type that is too narrow gives way to.
_WIDER = {"F16": "BF16", "BF16": "F32"}


def chunks(shape: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Cut the first axis into runs (start, stop) of CHUNK_WEIGHTS weights, but one row at least."""
    rows = shape[0]
    step = max(1, CHUNK_WEIGHTS // max(1, int(np.prod(shape[1:], dtype=np.int64))))
    for start in range(0, rows, step):
        yield start, min(start + step, rows)


def finite_reader(tensor: LazyTensor) -> Read:
    """Return a reader of the tensor's rows that refuses NaN and infinity by name and index."""

    def read(start: int, stop: int) -> NDArray[np.generic]:
        rows = tensor.read(start, stop)
        if not np.isfinite(_peak(rows)):
            index = np.argwhere(~np.isfinite(rows.astype(np.float32)))[0]
            value = float(rows[tuple(index)])
            index[0] += start
            raise CheckpointError(
                f"'{tensor.name}': the weight at {index.tolist()} is {value}.",
                hint="use another checkpoint; this one is damaged, or its training diverged.",
            )
        return rows

    return read


def narrowest(tensor: LazyTensor, wanted: str) -> str:
    """Return `wanted`, or the next wider float type that holds the tensor's largest magnitude.

    Reads the tensor, unless its type cannot exceed the wanted one.
    """
    fits = wanted
    if _greatest(tensor.dtype) > _greatest(DTYPES[wanted]):
        read = finite_reader(tensor)
        peak = max((_peak(read(*rows)) for rows in chunks(tensor.shape)), default=0.0)
        while peak > _greatest(DTYPES[fits]):
            fits = _WIDER[fits]
    return fits


def encode(rows: NDArray[np.generic], name: str) -> Bytes:
    """Round rows to a float type, to nearest even; returns (rows, row bytes)."""
    encoded = np.ascontiguousarray(rows.astype(DTYPES[name], copy=False))
    return encoded.reshape(len(rows), -1).view(np.uint8)


def _greatest(dtype: np.dtype) -> float:
    return float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]


def _peak(rows: NDArray[np.generic]) -> float:
    """Return the largest magnitude of float rows; NaN counts as larger than infinity."""
    if rows.size == 0:
        return 0.0
    width = 8 * rows.dtype.itemsize
    contiguous = np.ascontiguousarray(rows)
    # Without its sign bit a float's bits grow with its magnitude. As signed integers the largest is
    # that of the positive weights; as unsigned ones that of the negative, if there are any.
    positive = int(contiguous.view(f"i{width // 8}").max())
    negative = int(contiguous.view(f"u{width // 8}").max()) & ((1 << (width - 1)) - 1)
    bits = np.array(max(positive, negative), f"u{width // 8}")
    return float(bits.view(rows.dtype))
