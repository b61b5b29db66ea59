"""Grids of points: the nearest is found, signs are made even, and what shares bytes comes back."""

import numpy as np
import pytest

from edgequant.formats.grid import NEAR, Grid, GridFit, grid_of
from edgequant.formats.grid_blocks import (
    Parts,
    eight_signs,
    pack_codes,
    pack_words,
    seven_signs,
    unpack_codes,
    unpack_words,
)

FORMATS = {"IQ3_S": (1, 512, 4), "IQ3_XXS": (4, 256, 4), "IQ2_S": (8, 1024, 8),
           "IQ2_XS": (8, 512, 8), "IQ2_XXS": (8, 256, 8)}  # fmt: skip


def grid(name: str) -> Grid:
    return grid_of(name, FORMATS[name][0])()


@pytest.mark.parametrize("name", FORMATS)
def test_a_grid_is_read_from_gguf_py(name: str) -> None:
    _, points, dims = FORMATS[name]
    found = grid(name)
    assert found.rows.shape == (points, dims)
    assert found.rows.min() == 1
    assert len(np.unique(found.rows, axis=0)) == points


@pytest.mark.parametrize("name", FORMATS)
def test_the_point_taken_is_the_best_or_little_worse(name: str, rng: np.random.Generator) -> None:
    found = grid(name)
    u = rng.uniform(0, 1.1 * found.rows.max(), (1, found.dims, 400)).astype(np.float32)
    w = rng.lognormal(0, 0.5, u.shape).astype(np.float32)
    taken = found.nearest(u, w, NEAR)[0]
    off = found.rows[:, :, None] - u[0]
    costs = np.einsum("dn,pdn->pn", w[0], np.square(off))
    assert costs[taken, np.arange(400)].sum() < 1.05 * costs.min(axis=0).sum()
    assert (costs.argmin(axis=0) == taken).mean() > 0.85


@pytest.mark.parametrize("name", FORMATS)
def test_a_point_is_nearest_to_itself(name: str) -> None:
    found = grid(name)
    own = np.ascontiguousarray(found.rows.T)[None]
    assert np.array_equal(found.nearest(own, np.ones_like(own), 1)[0], np.arange(len(found.rows)))


def test_an_odd_number_of_signs_loses_the_one_that_costs_least() -> None:
    x = np.array([[-3, 2, 5, 4, 0.5, 6, 7, 8], [-3, 2, 5, 4, -0.5, 6, 7, 8]], np.float32).T
    w = np.ones_like(x)
    w[1, 0] = 0.1  # 0.1 times 2 is less than 0.5
    fit = GridFit(x.copy(), w, grid("IQ3_XXS"), even=True)
    assert fit.negative.sum(axis=0).tolist() == [2, 2]
    assert fit.x[:, 0].tolist() == [3, -2, 5, 4, 0.5, 6, 7, 8]
    assert fit.x[:, 1].tolist() == [3, 2, 5, 4, 0.5, 6, 7, 8]
    loose = GridFit(x.copy(), w, grid("IQ3_S"), even=False)
    assert loose.negative.sum(axis=0).tolist() == [1, 2]


def test_what_is_packed_comes_back(rng: np.random.Generator) -> None:
    signs = rng.integers(0, 256, (5, 32), dtype=np.uint8)
    even = eight_signs(seven_signs(signs))
    assert (np.unpackbits(even[..., None], axis=-1).sum(axis=-1) % 2 == 0).all()
    assert np.array_equal(seven_signs(even), seven_signs(signs))
    codes = rng.integers(0, 16, (5, 8), dtype=np.uint8)
    assert np.array_equal(unpack_codes(pack_codes(codes)), codes)
    parts = Parts(np.ones(5, np.float32), codes, np.zeros((5, 32), np.uint16), even)
    found_codes, found_signs = unpack_words(pack_words(parts))
    assert np.array_equal(found_codes, codes)
    assert np.array_equal(found_signs, even)
