"""What every format promises, tried on all that are registered."""

import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgequant.blocks import Floats
from edgequant.formats import Effort, QuantFormat, dequantize, find, names, quantize
from edgequant.formats.format import DECODE_WEIGHTS, ENCODE_WEIGHTS

FORMATS = [find(name) for name in names()]
EXACT = [fmt for fmt in FORMATS if fmt.name in {"F32", "F16", "BF16", "Q8_0"}]
WEIGHED = [fmt for fmt in FORMATS if fmt not in EXACT]
every_format = pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
every_weighed = pytest.mark.parametrize("fmt", WEIGHED, ids=lambda fmt: fmt.name)
few = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def round_trip(
    fmt: QuantFormat,
    rows: Floats,
    importance: Floats | None = None,
    effort: Effort = Effort.DEFAULT,
) -> Floats:
    return dequantize(fmt, quantize(fmt, rows, importance, effort=effort))


def gaussian(rng: np.random.Generator, rows: int, columns: int) -> Floats:
    return rng.normal(size=(rows, columns)).astype(np.float32)


def relative_error(rows: Floats, back: Floats) -> float:
    exact = rows.astype(np.float64)
    return float(((exact - back) ** 2).sum() / (exact**2).sum())


@every_weighed
def test_more_effort_loses_no_more(fmt: QuantFormat, rng: np.random.Generator) -> None:
    rows = gaussian(rng, 64, 512)
    importance = rng.lognormal(size=512).astype(np.float32)
    weight = np.sqrt(importance)
    fast, default, best = (
        relative_error(weight * rows, weight * round_trip(fmt, rows, importance, effort))
        for effort in Effort
    )
    assert best <= 1.001 * default  # the search sees costs, which are not quite this error
    assert default <= 1.001 * fast


@every_format
def test_half_a_block_is_refused(fmt: QuantFormat) -> None:
    if fmt.type.weights > 1:
        with pytest.raises(ValueError, match="are not whole blocks"):
            quantize(fmt, np.zeros((1, fmt.type.weights // 2), np.float32))


@every_format
def test_no_rows_are_no_bytes(fmt: QuantFormat) -> None:
    empty = quantize(fmt, np.zeros((0, 256), np.float32))
    assert empty.shape == (0, fmt.type.row_nbytes(256))
    assert dequantize(fmt, empty).size == 0


# How much of the sum of squares of Gaussian weights may be lost, a little above what was measured.
LOST = {"F32": 0, "F16": 5e-8, "BF16": 3e-6, "Q8_0": 3e-5, "Q4_0": 6.9e-3, "Q4_1": 5e-3,
        "Q5_0": 1.7e-3, "Q5_1": 1.2e-3, "Q2_K": 0.072, "Q3_K": 0.0226, "Q4_K": 5.2e-3,
        "Q5_K": 1.25e-3, "Q6_K": 3e-4, "IQ4_NL": 5.8e-3, "IQ4_XS": 5.8e-3, "MXFP4": 0.0127,
        "TQ1_0": 0.194, "TQ2_0": 0.194, "IQ3_S": 0.02, "IQ3_XXS": 0.036, "IQ2_S": 0.066,
        "IQ2_XS": 0.095, "IQ2_XXS": 0.13}  # fmt: skip


@every_format
def test_gaussian_weights_come_back(fmt: QuantFormat, rng: np.random.Generator) -> None:
    rows = gaussian(rng, 64, 512)
    assert relative_error(rows, round_trip(fmt, rows)) <= LOST[fmt.name]
    assert relative_error(rows, round_trip(fmt, rows, np.ones(512, np.float32))) <= (
        1.08 * LOST[fmt.name]  # large weights are favoured over the plain error
    )


@every_format
@few
@given(
    seed=st.integers(0, 2**32 - 1),
    smallest=st.integers(-46, 38),
    widths=st.tuples(st.integers(0, 84), st.integers(0, 84)),
    gaps=st.floats(0, 1),
    effort=st.sampled_from(Effort),
)
def test_finite_in_finite_out(
    fmt: QuantFormat,
    seed: int,
    smallest: int,
    widths: tuple[int, int],
    gaps: float,
    effort: Effort,
) -> None:
    rng = np.random.default_rng(seed)

    def scattered(shape: tuple[int, ...], width: int) -> Floats:
        """Magnitudes over some or all of float32's range, and zeros."""
        exponents = rng.uniform(smallest, min(smallest + width, 38.5), shape)
        values = np.where(rng.random(shape) < gaps, 0, 10.0**exponents)
        return np.minimum(values, np.finfo(np.float32).max).astype(np.float32)

    rows = scattered((2, 256), widths[0]) * rng.choice([-1, 1], (2, 256)).astype(np.float32)
    for importance in (None, scattered((256,), widths[1])):
        assert np.isfinite(round_trip(fmt, rows, importance, effort)).all()


@every_format
def test_zeros_stay_zeros(fmt: QuantFormat, rng: np.random.Generator) -> None:
    rows = gaussian(rng, 4, 768)
    rows[:, 256:512] = 0
    rows[3] = 0
    for importance in (None, np.ones(768, np.float32)):
        back = round_trip(fmt, rows, importance)
        assert (back[:, 256:512] == 0).all()
        assert (back[3] == 0).all()


@every_format
@few
@given(seed=st.integers(0, 2**32 - 1), power=st.integers(-4, 8))
def test_powers_of_two_scale_exactly(fmt: QuantFormat, seed: int, power: int) -> None:
    rng = np.random.default_rng(seed)
    rows = 4 * gaussian(rng, 2, 256)  # so that no scale leaves float16's normal range
    importance = rng.uniform(0.1, 4, 256).astype(np.float32)
    factor = np.float32(2.0**power)
    if fmt.name == "F16":  # here every weight is its own scale
        rows = np.copysign(np.maximum(np.abs(rows), np.float32(0.01)), rows)
    for given_importance in (None, importance):
        back = round_trip(fmt, rows, given_importance)
        assert np.array_equal(round_trip(fmt, rows * factor, given_importance), back * factor)


@every_format
@few
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 9),
    blocks=st.integers(1, 5),
    known=st.booleans(),
)
def test_a_row_does_not_see_its_neighbours(
    fmt: QuantFormat, seed: int, count: int, blocks: int, known: bool
) -> None:
    rng = np.random.default_rng(seed)
    columns = blocks * fmt.type.weights
    rows = gaussian(rng, count, columns)
    importance = rng.uniform(0, 4, columns).astype(np.float32) if known else None
    apart = [quantize(fmt, rows[i : i + 1], importance) for i in range(count)]
    assert np.array_equal(quantize(fmt, rows, importance), np.concatenate(apart))


@every_format
def test_pieces_and_threads_change_no_byte(fmt: QuantFormat, rng: np.random.Generator) -> None:
    rows = gaussian(rng, 3 * ENCODE_WEIGHTS // 1024 + 5, 1024)
    importance = rng.uniform(0, 4, 1024).astype(np.float32)
    whole = quantize(fmt, rows, importance)
    with ThreadPoolExecutor(2) as pool:
        parts = pool.map(lambda part: quantize(fmt, part, importance), np.split(rows, [7, 90]))
        apart = np.concatenate(list(parts))
    assert np.array_equal(whole, apart)


@every_format
def test_the_work_needs_little_room(fmt: QuantFormat, rng: np.random.Generator) -> None:
    rows = gaussian(rng, 4 * ENCODE_WEIGHTS // 2048, 2048)
    quantize(fmt, rows[:1])  # what is made once, such as grids
    tracemalloc.start()
    encoded = quantize(fmt, rows, np.ones(2048, np.float32))
    _, encoding = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    decoded = dequantize(fmt, encoded)
    _, decoding = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert encoding - encoded.nbytes < 16 * 4 * ENCODE_WEIGHTS
    assert decoding - encoded.nbytes - decoded.nbytes < 3 * 4 * DECODE_WEIGHTS


@pytest.mark.parametrize("fmt", EXACT, ids=lambda fmt: fmt.name)
def test_what_was_decoded_encodes_to_itself(fmt: QuantFormat, rng: np.random.Generator) -> None:
    once = round_trip(fmt, gaussian(rng, 16, 512))
    assert np.array_equal(round_trip(fmt, once), once)


@every_weighed
def test_encoding_again_loses_little_more(fmt: QuantFormat, rng: np.random.Generator) -> None:
    rows = gaussian(rng, 32, 512)
    once = round_trip(fmt, rows)
    assert relative_error(once, round_trip(fmt, once)) < 0.2 * relative_error(rows, once)


@every_weighed
def test_an_important_column_is_kept_better(fmt: QuantFormat, rng: np.random.Generator) -> None:
    rows = gaussian(rng, 256, 256)
    plain = np.ones(256, np.float32)
    for column in (0, 100, 255):
        stressed = plain.copy()
        stressed[column] = 30
        errors = [
            (np.square(rows - round_trip(fmt, rows, importance)))[:, column].sum()
            for importance in (plain, stressed)
        ]
        assert errors[1] < (1 if fmt.name == "MXFP4" else 0.8) * errors[0]  # it has powers of two


@every_weighed
@pytest.mark.parametrize("zeros", [32, 256, 1024])
def test_columns_never_reached_keep_their_weights(
    fmt: QuantFormat, zeros: int, rng: np.random.Generator
) -> None:
    rows = gaussian(rng, 16, 1024)
    importance = rng.uniform(0.5, 2, 1024).astype(np.float32)
    importance[512 : 512 + zeros] = 0
    importance[: zeros - 512] *= np.float32(zeros < 1024)
    back = round_trip(fmt, rows, importance)
    assert np.isfinite(back).all()
    assert relative_error(rows, back) < 2 * LOST[fmt.name]


# Half a step of 16 levels, and rounding of scales; or of the steps nearest to the largest weight.
HALF_STEP = {"MXFP4": 0.17, "TQ1_0": 0.36, "TQ2_0": 0.36, "IQ3_S": 0.27, "IQ3_XXS": 0.35,
             "IQ2_S": 0.2, "IQ2_XS": 0.2, "IQ2_XXS": 0.73}  # fmt: skip

BLOCKS = {
    "constant": np.full(256, 0.37),
    "constant below zero": np.full(256, -0.37),
    "all above zero": np.linspace(0.5, 1.5, 256),
    "all below zero": np.linspace(-1.5, -0.5, 256),
    "one large": np.r_[100.0, np.linspace(-1, 1, 255)],
    "two values": np.tile([1.0, -1.0], 128),
    "one of each sub-block": np.where(np.arange(256) % 32 == 5, 1.0, 0.0),
}


@every_format
@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS.keys())
@pytest.mark.parametrize("known", [False, True])
def test_special_blocks_come_back(fmt: QuantFormat, block: Floats, known: bool) -> None:
    rows = np.stack([block, block / 3]).astype(np.float32)
    most = HALF_STEP.get(fmt.name, 0.08) * np.ptp(np.r_[rows[0], 0])
    for effort in Effort:
        back = round_trip(fmt, rows, np.ones(256, np.float32) if known else None, effort)
        assert np.abs(back - rows).max() <= most


@every_format
@pytest.mark.parametrize("largest", [1e-45, 1e-40, 1e-20, 1e-9, 1e5, 1e9, 1e20, 3.4e38])
def test_sizes_beyond_float16_are_held(
    fmt: QuantFormat, largest: float, rng: np.random.Generator
) -> None:
    rows = (rng.uniform(-1, 1, (2, 256)) * largest).astype(np.float32)
    for importance in (None, np.full(256, 1e38, np.float32), np.full(256, 1e-44, np.float32)):
        back = round_trip(fmt, rows, importance)
        assert np.isfinite(back).all()
        # Too large: nothing grows, but by the width of a step. Too small: nothing appears but less
        # than float16's least.
        assert float(np.abs(back).max()) <= 1.3 * float(np.abs(rows).max()) + 6e-6
        assert (np.sign(back) * np.sign(rows) >= 0).mean() > 0.9


@every_format
def test_a_broken_scale_decodes_without_a_warning(fmt: QuantFormat) -> None:
    data = np.full((1, fmt.type.row_nbytes(256)), 0xFF, np.uint8)
    assert dequantize(fmt, data).shape == (1, 256)
