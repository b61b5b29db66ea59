import numpy as np
import pytest

from edgequant.blocks import Floats
from edgequant.formats.affine import AffineFit
from edgequant.formats.search import Search, Start, fan, inverse, to_half, turn, turn_back
from edgequant.formats.signed_codes import SignedRange, signed_codes
from edgequant.formats.superblock import CodeRange, affine_codes
from edgequant.formats.symmetric import Codebook, SymmetricFit, Whole

PLAIN = Search((Start(15),))
SIX_BITS = Whole(-32, 31)


def blocks(rng: np.random.Generator, k: int, n: int) -> Floats:
    return rng.normal(size=(k, n)).astype(np.float32)


def ones_like(x: Floats) -> Floats:
    return np.ones_like(x)


def error(fit: AffineFit | SymmetricFit, scale: Floats, minimum: Floats | float = 0.0) -> Floats:
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
    fit = AffineFit(0.25 * levels - 1.5, ones_like(levels), 15)
    scale, minimum = fit.search(PLAIN)
    assert np.allclose(scale, 0.25, rtol=1e-5)
    assert np.allclose(minimum, 1.5, rtol=1e-5)
    assert np.array_equal(fit.levels, levels)


def test_a_symmetric_grid_is_found_exactly(rng: np.random.Generator) -> None:
    levels = rng.integers(-31, 31, (16, 50)).astype(np.float32)
    levels[0] = -32
    fit = SymmetricFit(levels * np.float32(-0.5), ones_like(levels), SIX_BITS)
    assert np.allclose(fit.search(Search((Start(-32),))), -0.5, rtol=1e-5)
    assert np.array_equal(fit.levels, levels)


def test_blocks_above_zero_are_measured_from_zero(rng: np.random.Generator) -> None:
    x = np.abs(blocks(rng, 32, 40)) + 1
    scale, minimum = AffineFit(x, ones_like(x), 15).search(PLAIN)
    assert (minimum >= 0).all()
    assert (scale > 0).all()
    _, minimum = AffineFit(x, ones_like(x), 15, signed=True).search(PLAIN)
    assert (minimum < 0).any()


@pytest.mark.parametrize("signed", [False, True])
def test_a_block_all_alike_below_zero_is_a_min(signed: bool) -> None:
    x = np.full((32, 3), -0.75, np.float32)
    scale, minimum = AffineFit(x, ones_like(x), 15, signed=signed).search(PLAIN)
    assert np.allclose(minimum, 0.75)
    assert (scale == 0).all()


def test_least_squares_is_numpys(rng: np.random.Generator) -> None:
    x, w = blocks(rng, 32, 1), np.abs(blocks(rng, 32, 1)) + np.float32(0.1)
    fit = AffineFit(x, w, 15, signed=True)
    fit.assign(np.array([0.3], np.float32), np.array([2.0], np.float32))
    scale, minimum, gain = fit.solve(fit.sums())
    root = np.sqrt(w[:, 0])
    left = np.stack([root * fit.levels[:, 0], -root], 1)
    (s, m), rest, *_ = np.linalg.lstsq(left, root * x[:, 0], rcond=None)
    assert np.allclose([scale[0], minimum[0]], [s, m], rtol=1e-4)
    assert np.allclose((w * x * x).sum() - gain, rest, rtol=1e-4)


def test_more_starts_and_rounds_never_fit_worse(rng: np.random.Generator) -> None:
    x = blocks(rng, 32, 200)
    many = (*PLAIN.starts, *fan((13, 14, 16), (-0.3, 0.3)))
    errors = []
    for search in (Search(PLAIN.starts, rounds=0), Search(PLAIN.starts, rounds=2), Search(many, 2)):
        fit = AffineFit(x, np.abs(x), 15)
        scale, minimum = fit.search(search)
        fit.assign(scale, minimum)
        errors.append(error(fit, scale, minimum))
    assert (errors[1] <= errors[0] * 1.00001).all()
    assert errors[2].sum() < 0.97 * errors[1].sum()


@pytest.mark.parametrize("highest", [15, 63])
def test_affine_codes_lose_little_and_sweeps_help(highest: int, rng: np.random.Generator) -> None:
    x = blocks(rng, 32, 8 * 40)
    search = Search(fan((14, 15)))
    codes = CodeRange(each=8, highest=highest, aims=(highest + 1, highest - 0.5))
    totals = []
    for sweeps in (0, 1, 3):
        fit = AffineFit(x, ones_like(x), 15)
        found = affine_codes(fit, *fit.search(search), codes, sweeps=sweeps)
        for stored in (found.scales, found.mins):
            assert stored.shape == (40, 8)
            assert (stored == np.clip(np.rint(stored), 0, highest)).all()
        assert (found.d == found.d.astype(np.float16)).all()
        d, dmin = found.d[:, None] * found.scales, found.dmin[:, None] * found.mins
        totals.append(error(fit, d.reshape(-1), dmin.reshape(-1)).sum())
    free = AffineFit(x, ones_like(x), 15)
    scale, minimum = free.search(search)
    free.assign(scale, minimum)
    least = error(free, scale, minimum).sum()
    assert totals[2] <= totals[1] < totals[0] < (1.1 if highest == 63 else 1.7) * least


@pytest.mark.parametrize("codes", [SignedRange(16, -128, 127, (-127,)),
                                   SignedRange(16, -32, 31, (-32, -30, 31))])  # fmt: skip
def test_signed_codes_lose_little_and_sweeps_help(
    codes: SignedRange, rng: np.random.Generator
) -> None:
    x = blocks(rng, 16, 16 * 40)
    search = Search(fan((-34, -33, -32)))
    totals = []
    for sweeps in (0, 1, 3):
        fit = SymmetricFit(x, ones_like(x), SIX_BITS)
        found = signed_codes(fit, fit.nearest(fit.search(search)), codes, sweeps=sweeps)
        assert (found.scales == np.clip(np.rint(found.scales), codes.low, codes.high)).all()
        totals.append(error(fit, (found.d[:, None] * found.scales).reshape(-1)).sum())
    assert totals[2] <= totals[1] < totals[0]


def test_more_aims_for_d_never_lose_more(rng: np.random.Generator) -> None:
    x = blocks(rng, 16, 16 * 40)
    totals = []
    for aims in ((-32.0,), (-32.0, -31.0, -29.0, 30.0, 31.0)):
        fit = SymmetricFit(x, ones_like(x), SIX_BITS)
        scale = fit.search(Search(fan((-33, -32))))
        found = signed_codes(fit, fit.nearest(scale), SignedRange(16, -32, 31, aims), sweeps=0)
        totals.append(error(fit, (found.d[:, None] * found.scales).reshape(-1)).sum())
    assert totals[1] < totals[0]


def test_a_codebook_rounds_to_the_nearest(rng: np.random.Generator) -> None:
    book = Codebook((-12, -5, -2, 0, 1, 9))
    values = rng.uniform(-20, 20, (16, 200)).astype(np.float32)
    rounded = values.copy()
    book.round(rounded)
    distances = np.abs(values[..., None] - book.values)
    assert np.array_equal(np.abs(values - rounded), distances.min(-1))
    assert np.array_equal(book.values[book.codes(rounded.copy())], rounded)
