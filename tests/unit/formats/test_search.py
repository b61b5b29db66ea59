import numpy as np
import pytest

from edgequant.blocks import Floats
from edgequant.formats.search import Fit, Start, fan, inverse, to_half, turn, turn_back
from edgequant.formats.superblock import affine_codes, symmetric_codes

PLAIN = (Start(0),)


def blocks(rng: np.random.Generator, k: int, n: int) -> Floats:
    return rng.normal(size=(k, n)).astype(np.float32)


def ones_like(x: Floats) -> Floats:
    return np.ones_like(x)


def error(fit: Fit, scale: Floats, minimum: Floats | float = 0.0) -> Floats:
    return (fit.w * (fit.levels * scale - minimum - fit.x) ** 2).sum(0)


def test_what_is_too_small_has_no_inverse() -> None:
    values = np.array([2, -4, 0, 1e-38, -0.0], np.float32)
    assert inverse(values).tolist() == [0.5, -0.25, 0, 0, 0]


def test_halves_are_held_at_the_largest() -> None:
    values = np.array([1e9, -1e9, 1.0001, 65519], np.float32)
    assert to_half(values).tolist() == [65504, -65504, 1, 65504]


def test_turning_holds_and_comes_back() -> None:
    turned = turn(np.array([[1, 2, 300], [4, 5, 6]], np.float32), 255)
    assert turned.tolist() == [[1, 4], [2, 5], [255, 6]]
    assert turned.flags.c_contiguous
    assert turn_back(turned).tolist() == [[1, 2, 255], [4, 5, 6]]


def test_a_block_on_a_grid_is_found_exactly(rng: np.random.Generator) -> None:
    levels = rng.integers(0, 16, (32, 50)).astype(np.float32)
    levels[0], levels[1] = 0, 15
    fit = Fit(0.25 * levels - 1.5, ones_like(levels))
    scale, minimum = fit.affine(15, PLAIN)
    assert np.allclose(scale, 0.25, rtol=1e-5)
    assert np.allclose(minimum, 1.5, rtol=1e-5)
    assert np.array_equal(fit.levels, levels)


def test_a_symmetric_grid_is_found_exactly(rng: np.random.Generator) -> None:
    levels = rng.integers(-31, 31, (16, 50)).astype(np.float32)
    levels[0] = -32
    fit = Fit(levels * np.float32(-0.5), ones_like(levels))
    assert np.allclose(fit.symmetric(-32, 31, PLAIN), -0.5, rtol=1e-5)
    assert np.array_equal(fit.levels, levels)


def test_blocks_above_zero_are_measured_from_zero(rng: np.random.Generator) -> None:
    x = np.abs(blocks(rng, 32, 40)) + 1
    scale, minimum = Fit(x, ones_like(x)).affine(15, PLAIN)
    assert (minimum >= 0).all()
    assert (scale > 0).all()
    _, minimum = Fit(x, ones_like(x)).affine(15, PLAIN, signed=True)
    assert (minimum < 0).any()


@pytest.mark.parametrize("signed", [False, True])
def test_a_block_all_alike_below_zero_is_a_min(signed: bool) -> None:
    x = np.full((32, 3), -0.75, np.float32)
    scale, minimum = Fit(x, ones_like(x)).affine(15, PLAIN, signed=signed)
    assert np.allclose(minimum, 0.75)
    assert (scale == 0).all()


def test_least_squares_is_numpys(rng: np.random.Generator) -> None:
    x, w = blocks(rng, 32, 1), np.abs(blocks(rng, 32, 1)) + np.float32(0.1)
    fit = Fit(x, w)
    fit.assign_affine(np.array([0.3], np.float32), np.array([2.0], np.float32), 15)
    scale, minimum, gain = fit.solve_affine(fit.affine_sums(), signed=True)
    root = np.sqrt(w[:, 0])
    left = np.stack([root * fit.levels[:, 0], -root], 1)
    (s, m), rest, *_ = np.linalg.lstsq(left, root * x[:, 0], rcond=None)
    assert np.allclose([scale[0], minimum[0]], [s, m], rtol=1e-4)
    assert np.allclose((w * x * x).sum() - gain, rest, rtol=1e-4)


def test_more_starts_and_rounds_never_fit_worse(rng: np.random.Generator) -> None:
    x = blocks(rng, 32, 200)
    errors = []
    for starts, rounds in ((PLAIN, 0), (PLAIN, 2), ((*PLAIN, *fan((-2, -1, 1), (-0.3, 0.3))), 2)):
        fit = Fit(x, np.abs(x))
        scale, minimum = fit.affine(15, starts, rounds=rounds)
        fit.assign_affine(scale, minimum, 15)
        errors.append(error(fit, scale, minimum))
    assert (errors[1] <= errors[0] * 1.00001).all()
    assert errors[2].sum() < 0.97 * errors[1].sum()


def test_affine_codes_lose_little_and_sweeps_help(rng: np.random.Generator) -> None:
    x = blocks(rng, 32, 8 * 40)
    totals = []
    for sweeps in (0, 1, 3):
        fit = Fit(x, ones_like(x))
        scale, minimum = fit.affine(15, fan((-1, 0)))
        codes = affine_codes(fit, scale, minimum, 15, each=8, sweeps=sweeps)
        for stored in (codes.scales, codes.mins):
            assert stored.shape == (40, 8)
            assert (stored == np.clip(np.rint(stored), 0, 63)).all()
        assert (codes.d == codes.d.astype(np.float16)).all()
        d, dmin = codes.d[:, None] * codes.scales, codes.dmin[:, None] * codes.mins
        totals.append(error(fit, d.reshape(-1), dmin.reshape(-1)).sum())
    free = Fit(x, ones_like(x))
    scale, minimum = free.affine(15, fan((-1, 0)))
    free.assign_affine(scale, minimum, 15)
    assert totals[2] <= totals[1] < totals[0] < 1.1 * error(free, scale, minimum).sum()


def test_symmetric_codes_lose_little_and_sweeps_help(rng: np.random.Generator) -> None:
    x = blocks(rng, 16, 16 * 40)
    totals = []
    for sweeps in (0, 1, 3):
        fit = Fit(x, ones_like(x))
        scale = fit.symmetric(-32, 31, fan((-2, -1, 0)))
        codes = symmetric_codes(fit, scale, -32, 31, each=16, sweeps=sweeps)
        assert (codes.scales == np.clip(np.rint(codes.scales), -128, 127)).all()
        totals.append(error(fit, (codes.d[:, None] * codes.scales).reshape(-1)).sum())
    assert totals[2] <= totals[1] < totals[0]
