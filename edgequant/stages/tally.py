"""Sums of squares as they are collected, in float64, chunk by chunk.

It turns what a device reports into what an importance matrix holds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from edgequant.device.protocol import Sums
from edgequant.errors import ImatrixError
from edgequant.model.importance import Entry, ImportanceMatrix

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Tally:
    """What was seen so far; replaced as a whole, so that an interrupt finds it consistent.

    Attributes:
        chunks: of text.
        entries: by weight name, (matrices, columns) sums of squares and (matrices,) tokens.
    """

    chunks: int = 0
    entries: Mapping[str, tuple[Doubles, Doubles]] = field(default_factory=dict)

    @classmethod
    def of(cls, matrix: ImportanceMatrix) -> "Tally":
        """Start from what a file holds."""
        entries = {
            name: (entry.in_sum2.astype(np.float64), entry.counts.astype(np.float64))
            for name, entry in matrix.entries.items()
        }
        return cls(matrix.chunk_count, entries)

    def plus(self, seen: Mapping[str, Sums], where: str) -> "Tally":
        """Add one chunk.

        Raises:
            ImatrixError: a sum is not finite; names the weight and the chunk.
        """
        entries = dict(self.entries)
        for name, sums in seen.items():
            squares = np.atleast_2d(sums.in_sum2).astype(np.float64)
            tokens = np.atleast_1d(np.asarray(sums.count, np.float64))
            if not np.isfinite(squares).all():
                raise ImatrixError(
                    f"{where}: the input of '{name}' is not finite in chunk {self.chunks + 1:,}.",
                    hint="check the model with edgequant perplexity; convert it again.",
                )
            before = entries.get(name)
            if before is not None:
                squares, tokens = before[0] + squares, before[1] + tokens
            entries[name] = (squares, tokens)
        return Tally(self.chunks + 1, entries)

    def matrix(self, datasets: tuple[str, ...], chunk_size: int) -> ImportanceMatrix:
        """Return it as it is kept on disk, float32, sorted by name."""
        entries = {
            name: Entry(squares.astype(np.float32), tokens.astype(np.float32))
            for name, (squares, tokens) in sorted(self.entries.items())
        }
        return ImportanceMatrix(entries, datasets, self.chunks, chunk_size)
