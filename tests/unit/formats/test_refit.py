"""Levels put anew into blocks whose scales stay."""

import numpy as np
import pytest

from edgequant.blocks import Floats
from edgequant.formats import QuantFormat, dequantize, find, names, quantize
from edgequant.formats.format import Blocks

FORMATS = [find(name) for name in names() if find(name).refit is not None]
every_format = pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
GRIDS = [fmt for fmt in FORMATS if fmt.name.startswith(("IQ2", "IQ3"))]
SCALAR = [fmt for fmt in FORMATS if fmt not in GRIDS]


def encoded(fmt: QuantFormat, rows: Floats) -> Blocks:
    return quantize(fmt, rows).reshape(-1).view(fmt.block)


def decoded(fmt: QuantFormat, blocks: Blocks) -> Floats:
    return dequantize(fmt, blocks.view(np.uint8).reshape(1, -1)).reshape(-1, fmt.type.weights)


def refitted(fmt: QuantFormat, blocks: Blocks, weights: Floats) -> Blocks:
    found = blocks.copy()
    assert fmt.refit is not None
    fmt.refit(found, weights)
    return found


def draw(rng: np.random.Generator) -> Floats:
    return rng.standard_normal((8, 512)).astype(np.float32)


def test_what_quantizing_to_few_bits_uses_can_be_refitted() -> None:
    assert {fmt.name for fmt in FORMATS} >= {
        "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS", "IQ3_S", "IQ3_XXS", "IQ2_S", "IQ2_XS",
        "IQ2_XXS", "F32",
    }  # fmt: skip


@every_format
def test_scales_stay(fmt: QuantFormat, rng: np.random.Generator) -> None:
    blocks = encoded(fmt, draw(rng))
    stored, other = decoded(fmt, blocks), draw(rng).reshape(-1, fmt.type.weights)
    moved = refitted(fmt, blocks, other)
    assert not np.array_equal(moved, blocks)
    assert np.array_equal(refitted(fmt, moved, stored), blocks)


@pytest.mark.parametrize("fmt", GRIDS, ids=lambda fmt: fmt.name)
def test_points_are_near(fmt: QuantFormat, rng: np.random.Generator) -> None:
    rows = draw(rng)
    blocks = encoded(fmt, rows)
    weights = (rows + 0.1 * draw(rng)).reshape(-1, fmt.type.weights)
    lost = np.square(decoded(fmt, refitted(fmt, blocks, weights)) - weights).mean()
    anew = np.square(decoded(fmt, encoded(fmt, weights.reshape(rows.shape))) - weights).mean()
    assert lost <= 1.1 * anew  # scales found for about these weights are nearly best


@pytest.mark.parametrize("fmt", SCALAR, ids=lambda fmt: fmt.name)
def test_no_level_is_nearer(fmt: QuantFormat, rng: np.random.Generator) -> None:
    blocks = encoded(fmt, draw(rng))
    weights = draw(rng).reshape(-1, fmt.type.weights)
    error = np.abs(decoded(fmt, refitted(fmt, blocks, weights)) - weights)
    for _ in range(8):  # levels of the same blocks that other weights have
        other = decoded(fmt, refitted(fmt, blocks, 2 * draw(rng).reshape(weights.shape)))
        assert (error <= np.abs(other - weights) + 1e-6).all()
