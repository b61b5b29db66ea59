"""The importance of each column of each weight, as a model showed on text.

For each linear layer: the sum of squares of every input feature over the tokens seen, and how many
those were; their quotient is the importance. How the numbers are kept on disk is the business of
`imatrix_file.py`, what they are used for of `formats`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from edgequant.blocks import Floats, TensorInfo
from edgequant.errors import ImatrixError


@dataclass(frozen=True)
class Entry:
    """What one weight saw.

    Attributes:
        in_sum2: (matrices, columns) float32 >= 0, sums of squares; a matrix is an expert, or the
            only one.
        counts: (matrices,) float32 >= 0, tokens that reached it.
    """

    in_sum2: Floats
    counts: Floats

    def mean(self) -> Floats:
        """Return (matrices, columns) float32; what saw no token weighs all columns alike, by 1."""
        seen = self.counts[:, None] > 0
        divisor = np.maximum(self.counts, np.float32(1))[:, None]
        mean: Floats = np.where(seen, self.in_sum2 / divisor, np.float32(1))
        return mean

    @property
    def unseen(self) -> int:
        """How many matrices saw no token."""
        return int(np.count_nonzero(self.counts == 0))

    @property
    def zero_share(self) -> float:
        """The share of columns of seen matrices whose input was always zero, 0..1."""
        seen = self.in_sum2[self.counts > 0]
        return float(np.mean(seen == 0)) if seen.size else 0.0


@dataclass(frozen=True)
class ImportanceMatrix:
    """The content of an importance matrix file.

    Attributes:
        entries: by weight name, such as "blk.0.attn_q.weight".
        datasets: names of the texts.
        chunk_count: chunks of text seen.
        chunk_size: tokens a chunk; None from a legacy file, which does not say and which counts
            chunks where others count tokens.
    """

    entries: Mapping[str, Entry]
    datasets: tuple[str, ...]
    chunk_count: int
    chunk_size: int | None

    def mean(self, name: str) -> Floats | None:
        """Return a weight's importance, (matrices, columns) float32; None if it has no entry."""
        entry = self.entries.get(name)
        return None if entry is None else entry.mean()

    def fitted(self, tensors: Sequence[TensorInfo], where: str) -> "ImportanceMatrix":
        """Check that every entry belongs to a tensor of the model, and give it the tensor's shape.

        Args:
            tensors: the model's.
            where: the importance matrix's file, for the message.

        Raises:
            ImatrixError: names the first entry that is not in the model, or not of its shape.
        """
        model = {info.name: info for info in tensors}
        fitted = {}
        for name, entry in self.entries.items():
            info = model.get(name)
            if info is None:
                raise ImatrixError(
                    f"{where}: '{name}' is not a tensor of the model "
                    f"({len(self.entries)} entries, {len(model)} tensors).",
                    hint="use the importance matrix that was made from this model.",
                )
            fitted[name] = _shape_like(info, entry, f"{where}: '{name}'")
        return replace(self, entries=fitted)


def stacked(info: TensorInfo) -> int:
    """Return how many matrices a tensor stacks: its experts, or 1."""
    return info.rows // max(1, info.shape[-2]) if len(info.shape) > 2 else 1


def _shape_like(info: TensorInfo, entry: Entry, where: str) -> Entry:
    """Bring an entry to its tensor's (matrices, columns); a legacy file has them in one row."""
    matrices, columns = entry.in_sum2.shape
    if matrices == 1 and columns == stacked(info) * info.columns:
        return Entry(
            entry.in_sum2.reshape(stacked(info), info.columns),
            np.repeat(entry.counts, stacked(info)),
        )
    hint = "use the importance matrix that was made from this model."
    if columns != info.columns:
        raise ImatrixError(f"{where} has {columns:,} columns, not {info.columns:,}.", hint=hint)
    if matrices != stacked(info):
        raise ImatrixError(f"{where} has {matrices:,} matrices, not {stacked(info):,}.", hint=hint)
    return entry
