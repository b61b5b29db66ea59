"""The costs, against their formulas written plainly over (rows, columns)."""

import numpy as np
import pytest

from edgequant.blocks import Floats
from edgequant.formats import costs

ROWS, COLUMNS = 3, 512


@pytest.fixture
def rows(rng: np.random.Generator) -> Floats:
    return rng.normal(size=(ROWS, COLUMNS)).astype(np.float32)


@pytest.fixture
def importance(rng: np.random.Generator) -> Floats:
    return rng.uniform(0.1, 4, COLUMNS).astype(np.float32)


def turned(rows: Floats, each: int) -> Floats:
    return np.ascontiguousarray(rows.reshape(-1, each).T)


def test_importance_is_the_same_in_every_row(importance: Floats) -> None:
    spread = np.tile(importance, (ROWS, 1))
    assert np.array_equal(costs.by_importance(importance, ROWS, 16), turned(spread, 16))


def test_importance_and_size_over_superblocks(rows: Floats, importance: Floats) -> None:
    x = turned(rows, 32)
    variance = 2 * costs.pooled(costs.mean_square(x), 8)
    found = costs.by_importance_and_size(x, variance, importance, ROWS)
    sigma2 = 2 * np.square(rows).reshape(ROWS, -1, 256).mean(2).repeat(256, axis=1)
    assert np.allclose(found, turned(importance * np.sqrt(sigma2 + rows**2), 32), rtol=1e-5)


@pytest.mark.parametrize("factor", [1, 2])
def test_superblocks_with_and_without_importance(
    rows: Floats, importance: Floats, factor: int
) -> None:
    mean = np.square(rows).reshape(ROWS, -1, 256).mean(2).repeat(256, axis=1)
    x = turned(rows, 16)
    found = costs.by_superblock(x, importance, ROWS, 16, factor)
    expected = importance * np.sqrt(factor * mean + rows**2)
    assert np.allclose(found, turned(expected, 16), rtol=1e-5)
    unknown = costs.by_superblock(x, None, ROWS, 16, factor)
    assert np.allclose(unknown, turned(mean + rows**2, 16), rtol=1e-5)


def test_size_alone(rows: Floats) -> None:
    sigma = np.sqrt(np.square(rows).reshape(ROWS, -1, 32).mean(2)).repeat(32, axis=1)
    assert np.allclose(costs.by_size(turned(rows, 32)), turned(sigma + np.abs(rows), 32), rtol=1e-5)


def test_the_row_is_what_blocks_without_superblocks_see(rows: Floats, importance: Floats) -> None:
    x = turned(rows, 32)
    sigma2 = 4 * np.square(rows).mean(1, keepdims=True)
    expected = turned(importance * np.sqrt(sigma2 + rows**2), 32)
    assert np.allclose(costs.by_row(x, importance, ROWS), expected, rtol=1e-5)
    assert (costs.by_row(x, None, ROWS) == 1).all()
