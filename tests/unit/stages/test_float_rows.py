"""Float rows: cut, checked and encoded as computing with the values themselves would."""

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from edgequant.blocks import LazyTensor
from edgequant.errors import CheckpointError
from edgequant.source.shard import DTYPES
from edgequant.stages.float_rows import CHUNK_WEIGHTS, chunks, encode, finite_reader, narrowest

floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


def lazy(values: NDArray[np.generic]) -> LazyTensor:
    read: Callable[[int, int], NDArray[np.generic]] = lambda start, stop: values[start:stop]  # noqa: E731
    return LazyTensor("w", values.shape, values.dtype, read)


@pytest.mark.parametrize(
    "shape", [(0,), (1,), (7,), (3, 5), (5000, 1000), (3, CHUNK_WEIGHTS + 1), (4, 0), (2, 3, 4)]
)
def test_chunks_cover_the_rows_once(shape: tuple[int, ...]) -> None:
    found = list(chunks(shape))
    assert [row for start, stop in found for row in range(start, stop)] == list(range(shape[0]))
    for start, stop in found:
        assert stop - start == 1 or (stop - start) * np.prod(shape[1:]) <= CHUNK_WEIGHTS


@pytest.mark.parametrize("source", DTYPES.values(), ids=str)
@pytest.mark.parametrize("name", DTYPES)
@settings(max_examples=20)
@given(values=hnp.arrays(np.float32, (3, 4), elements=floats))
def test_encode_rounds_as_astype(source: np.dtype, name: str, values: NDArray[np.float32]) -> None:
    with np.errstate(over="ignore"):
        rows = np.clip(values.astype(source), -6e4, 6e4).astype(source)
        encoded = encode(rows, name)
        expected = rows.astype(DTYPES[name])
    assert encoded.dtype == np.uint8
    assert encoded.shape == (3, 4 * DTYPES[name].itemsize)
    assert encoded.tobytes() == expected.tobytes()


def test_encode_takes_one_dimension() -> None:
    assert encode(np.ones(5, np.float32), "F32").tobytes() == np.ones(5, np.float32).tobytes()


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
@settings(max_examples=30)
@given(
    values=hnp.arrays(np.float32, (4, 3), elements=floats),
    at=st.tuples(st.integers(0, 3), st.integers(0, 2)),
    poison=st.sampled_from([np.nan, -np.nan, np.inf, -np.inf]),
)
def test_what_is_not_finite_is_named_by_index(
    dtype: np.dtype, values: NDArray[np.float32], at: tuple[int, int], poison: float
) -> None:
    with np.errstate(over="ignore"):
        rows = np.clip(values, -6e4, 6e4).astype(dtype)
    np.testing.assert_array_equal(finite_reader(lazy(rows))(0, 4), rows)
    rows[at] = poison
    with pytest.raises(CheckpointError, match="'w': the weight at") as caught:
        finite_reader(lazy(rows))(at[0], 4)
    assert f"the weight at [{at[0]}, {at[1]}] is {poison}." in caught.value.what


@pytest.mark.parametrize(
    ("source", "peak", "wanted", "expected"),
    [
        ("F32", 65504.0, "F16", "F16"),
        ("F32", -65505.0, "F16", "BF16"),
        ("F32", 3.39e38, "F16", "F32"),
        ("F32", -3.4e38, "BF16", "F32"),
        ("F32", 3.38e38, "BF16", "BF16"),
        ("F32", 3.4e38, "F32", "F32"),
        ("BF16", 65280.0, "F16", "F16"),
        ("BF16", -65536.0, "F16", "BF16"),
        ("BF16", 3e38, "BF16", "BF16"),
        ("F16", 65504.0, "F16", "F16"),
        ("F16", -65504.0, "BF16", "BF16"),
    ],
)
def test_a_type_too_narrow_gives_way(source: str, peak: float, wanted: str, expected: str) -> None:
    values = np.zeros((2, 3), DTYPES[source])
    values[1, 1] = peak
    assert narrowest(lazy(values), wanted) == expected
    kept = encode(values, expected).reshape(-1).view(DTYPES[expected])
    assert np.isfinite(kept.astype(np.float64)).all()


def test_the_limits_are_the_types_own() -> None:
    assert float(ml_dtypes.finfo(DTYPES["F16"]).max) == 65504
    assert float(ml_dtypes.finfo(DTYPES["BF16"]).max) == 2.0**127 * (2 - 2**-7)
