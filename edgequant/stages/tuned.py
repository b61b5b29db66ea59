"""Weights under tuning: what each would be, the levels nearest to that, and how it moves.

A stored weight is one of a few levels, so a gradient cannot move it by a little. Therefore each has
a latent value z beside it, at first the weight of the reference; what the model computes with is
the level nearest to z under the scales of its block, which stay; and the gradient by that level
moves z, as if rounding were not there (straight-through: Bengio, Léonard and Courville, "Estimating
or Propagating Gradients Through Stochastic Neurons", 2013; of the rounding of weights: Esser et
al., "Learned Step Size Quantization", 2020, whose step sizes are learned too).

Steps are Adam's (Kingma and Ba, 2015) times a rate times the block's unit: the distance of levels
by its rounding error e, which is sqrt(12 mean e²) where it is spread evenly between two of them. So
one rate suits all formats. What is stored as it is (norms, biases) has a share of its size as unit.
z stays within a unit of its level: beyond the last level a gradient would move it ever further.

It does not know models, texts or what the gradients are of.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from edgequant.blocks import Bytes, Floats, Weight
from edgequant.formats import find
from edgequant.formats.matrix import Matrix

PIECE_WEIGHTS = 1 << 16  # six arrays of 256 KiB at once
FLOAT_UNIT = 0.02  # of a float weight's magnitude
BYTES_A_WEIGHT = 20  # z, the level, the gradient and Adam's two moments, in float32
BETAS = (0.9, 0.95)
EPSILON = 1e-8


@dataclass(frozen=True)
class Pace:
    """How far the next step goes.

    Attributes:
        step: its number, from 1.
        rate: in units.
    """

    step: int
    rate: float


class Tuned:
    """One weight.

    Args:
        weight: as it is stored, of a format with `refit`.
        wanted: (rows, columns) float32, the reference's; z begins there.

    Attributes:
        matrix: the weight as it is now.
        total: of the weight's shape, the gradient so far.
    """

    def __init__(self, weight: Weight, wanted: Floats) -> None:
        self._format = find(weight.type.name)
        self._data = np.array(weight.data)
        self._blocks = self._data.reshape(-1).view(self._format.block)
        self.matrix = Matrix(weight).kept()
        assert self.matrix.whole is not None
        self.total = np.zeros(weight.shape, np.float32)
        each = (-1, weight.type.weights)
        self._level, self._slope = self.matrix.whole.reshape(each), self.total.reshape(each)
        self._z = np.array(wanted, np.float32).reshape(each)
        self._mean, self._square = np.zeros_like(self._z), np.zeros_like(self._z)
        if weight.type.weights == 1:
            self._unit = FLOAT_UNIT * np.abs(self._z)
        else:
            error = np.square(self._level - self._z).mean(axis=1, keepdims=True)
            self._unit = np.sqrt(12 * error)

    @property
    def data(self) -> Bytes:
        """The bytes to be stored, (rows, row bytes)."""
        return self._data

    def pieces(self) -> Iterator[slice]:
        """Cut it into runs of blocks, which may move in any order and on any thread."""
        count, step = len(self._z), max(1, PIECE_WEIGHTS // self._z.shape[1])
        for start in range(0, count, step):
            yield slice(start, min(start + step, count))

    def move(self, piece: slice, pace: Pace) -> None:
        """Move a piece against its gradient, which is zero again after."""
        slope, mean, square = self._slope[piece], self._mean[piece], self._square[piece]
        mean += (slope - mean) * np.float32(1 - BETAS[0])
        np.square(slope, out=slope)
        square += (slope - square) * np.float32(1 - BETAS[1])
        slope[...] = 0
        size = np.sqrt(square / np.float32(1 - BETAS[1] ** pace.step))
        size += np.float32(EPSILON)
        step = mean * np.float32(pace.rate / (1 - BETAS[0] ** pace.step))
        step /= size
        unit, level, z = self._unit[piece], self._level[piece], self._z[piece]
        step *= unit
        z -= step
        np.clip(z, level - unit, level + unit, out=z)
        assert self._format.refit is not None
        self._format.refit(self._blocks[piece], z)
        self._format.decode(self._blocks[piece], level)
