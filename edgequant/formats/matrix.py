"""A weight read as float32: whole, by row chunks, or by row numbers.

The ops of the graph multiply with it without knowing its format, and it decides nothing about
memory: who wants the decoded rows kept calls `kept()`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edgequant.blocks import Floats, Weight
from edgequant.formats.format import dequantize, find

CHUNK_WEIGHTS = 1 << 20  # 4 MiB of float32: fits a core's share of cache, hides Python's overhead


@dataclass(frozen=True)
class Matrix:
    """Decoded rows of one `Weight`; `whole` holds them all when they are kept."""

    weight: Weight
    whole: Floats | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """NumPy order, (rows, columns) for a matrix, (columns,) for a vector."""
        return self.weight.shape

    def rows(self, start: int, stop: int) -> Floats:
        """Return rows start..stop as (rows, columns) float32."""
        if self.whole is not None:
            return self.whole[start:stop]
        return dequantize(find(self.weight.type.name), self.weight.data[start:stop])

    def take(self, ids: NDArray[np.integer]) -> Floats:
        """Return the rows of these numbers, (len(ids), columns) float32."""
        if self.whole is not None:
            taken: Floats = self.whole[ids]
            return taken
        return dequantize(find(self.weight.type.name), self.weight.data[ids])

    def chunks(self) -> Iterator[tuple[int, Floats]]:
        """Yield (first row, rows) through the whole matrix, about 4 MiB of float32 at a time."""
        count = self.weight.info.rows
        if self.whole is not None:
            yield 0, self.whole
            return
        step = max(1, CHUNK_WEIGHTS // max(1, self.weight.info.columns))
        for start in range(0, count, step):
            yield start, self.rows(start, min(start + step, count))

    def vector(self) -> Floats:
        """Return a one-dimensional weight, (columns,) float32."""
        row: Floats = self.rows(0, 1)[0]
        return row

    def kept(self) -> "Matrix":
        """Return the same matrix with its decoded rows held in memory."""
        return replace(self, whole=self.rows(0, self.weight.info.rows))
