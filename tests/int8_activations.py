"""Activations as kernels round them to int8, read back; see shaders/lib/activations.slang."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgequant.blocks import Bytes, Floats


class Int8Activations(NamedTuple):
    """Blocks of 32: quants (blocks, 32), scales (blocks,), and the sums of halves (blocks, 2)."""

    quants: NDArray[np.int8]
    scales: Floats
    sums: Floats

    @property
    def values(self) -> Floats:
        """What they stand for, (blocks, 32)."""
        return self.quants * self.scales[:, None]


def read_int8(raw: Bytes, tokens: int, columns: int) -> Int8Activations:
    """Take apart what kernels wrote, and hold the sums against the quants."""
    count = tokens * columns
    quants = raw[:count].view(np.int8).reshape(-1, 32)
    halves = raw[count : count * 3 // 2].view(np.float32).reshape(2, -1, 2)
    np.testing.assert_array_equal(halves[0, :, 0], halves[1, :, 0])
    read = Int8Activations(quants, halves[0, :, 0], halves[:, :, 1].T)
    exact = quants.reshape(-1, 2, 16).sum(2) * read.scales[:, None]
    np.testing.assert_allclose(read.sums, exact, 1e-6)
    return read
