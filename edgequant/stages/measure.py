"""What each format would lose of a weight, measured by encoding a sample of its rows.

A tensor costs the same whatever its size: rows are drawn, seeded by its name, from at most a few of
its matrices, and only they are read. It does not know what an error does to the model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np

from edgequant.blocks import BLOCK_TYPES, Floats, Weight
from edgequant.formats import Effort, dequantize, find, quantize
from edgequant.model.importance import stacked
from edgequant.stages.recode import check_finite

SAMPLE_WEIGHTS = 1 << 16
SAMPLE_ROWS = 8  # at least, a matrix
SAMPLE_MATRICES = 8  # at most, of experts

# Of each size one: what loses more at the same bytes (Q2_K and Q3_K beside IQ2_S and IQ3_S, MXFP4,
# Q4_0 beside IQ4_NL in superblocks) or is made for weights of three values (TQ1_0, TQ2_0) is left
# out.
_SUPERBLOCKS = (
    "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_XS", "Q4_K", "Q5_K", "Q6_K", "Q8_0"
)  # fmt: skip
_BLOCKS = ("Q4_0", "IQ4_NL", "Q4_1", "Q5_0", "Q5_1", "Q8_0")


@dataclass(frozen=True)
class Trial:
    """What to measure.

    Attributes:
        weight: of a type that can be decoded.
        formats: that can be encoded, and that its rows fill.
        importance: (matrices, columns) or None.
        where: its name in messages.
    """

    weight: Weight
    formats: Sequence[str]
    importance: Floats | None
    where: str


@dataclass(frozen=True)
class Sample:
    """What was measured of a weight, a mean over its matrices.

    Attributes:
        energy: E|y|² of a matrix's output y, by its columns' importance (1 where unknown).
        errors: by format, what share of it quantizing adds as noise.
    """

    energy: float
    errors: Mapping[str, float]


def fitting_formats(columns: int) -> tuple[str, ...]:
    """Return the formats worth measuring that rows of so many columns fill."""
    for formats in (_SUPERBLOCKS, _BLOCKS):
        if columns % max(BLOCK_TYPES[name].weights for name in formats) == 0:
            return formats
    return ("F16",)


def measure(trial: Trial, effort: Effort = Effort.DEFAULT) -> Sample:
    """Measure the formats of a trial at an effort.

    Raises:
        GGUFError: one of the weights read is not a finite number.
    """
    weight, importance = trial.weight, trial.importance
    info = weight.info
    matrices = stacked(info)
    rows = info.rows // matrices
    rng = np.random.default_rng(crc32(info.name.encode("utf-8", "surrogateescape")))
    drawn = rng.choice(matrices, min(matrices, SAMPLE_MATRICES), replace=False)
    each = min(rows, max(SAMPLE_ROWS, SAMPLE_WEIGHTS // info.columns // len(drawn)))
    energies, errors = [], []
    for matrix in drawn:
        chosen = matrix * rows + np.sort(rng.choice(rows, each, replace=False))
        x = dequantize(find(weight.type.name), weight.data[chosen])
        check_finite(x, chosen, trial.where)
        q = None if importance is None else importance[matrix]
        energy = _sum(x, q)
        energies.append(energy / each * rows)
        noise = [_sum(_error(name, x, q, effort), q) for name in trial.formats]
        errors.append([lost / energy if energy else 0 for lost in noise])
    means = np.mean(errors, axis=0).tolist()
    return Sample(float(np.mean(energies)), dict(zip(trial.formats, means, strict=True)))


def _error(name: str, x: Floats, importance: Floats | None, effort: Effort) -> Floats:
    error = dequantize(find(name), quantize(find(name), x, importance, effort=effort))
    error -= x
    return error


def _sum(x: Floats, importance: Floats | None) -> float:
    """Sum of q x², in float64."""
    squares = np.square(x, dtype=np.float64).sum(axis=0)
    return float(squares.sum() if importance is None else squares @ importance.astype(np.float64))
