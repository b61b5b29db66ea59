"""Activations as kernels round them to int8, read back; see shaders/lib/activations.slang."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgequant.blocks import Bytes, Floats


class Int8Activations(NamedTuple):
    """Halves of blocks: quants (halves, 16), scales (halves,), sums of quants times scale."""

    quants: NDArray[np.int8]
    scales: Floats
    sums: Floats

    @property
    def values(self) -> Floats:
        """What they stand for, (halves, 16)."""
        return self.quants * self.scales[:, None]


def read_int8(raw: Bytes, tokens: int, columns: int) -> Int8Activations:
    """Take apart what kernels wrote, and hold the sums against the quants."""
    count = tokens * columns
    quants = raw[:count].view(np.int8).reshape(-1, 16)
    planes = raw[count : count * 3 // 2].view(np.float32).reshape(2, -1, 2)
    scales, sums = planes.transpose(2, 1, 0).reshape(2, -1)
    np.testing.assert_allclose(sums, quants.sum(1) * scales, 1e-6)
    return Int8Activations(quants, scales, sums)


def read_squares(raw: Bytes, columns: int) -> Floats:
    """Return the sums of squares behind the activations of one token, (columns / 16,)."""
    return raw[columns * 3 // 2 :].view(np.float32)
