"""F16 bit by bit: all there are."""

import numpy as np

from edgequant.formats import dequantize, find, quantize

ALL = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
FINITE = ALL[np.isfinite(ALL)]


def decoded(halves: np.ndarray) -> np.ndarray:
    return dequantize(find("F16"), halves.reshape(1, -1).view(np.uint8))[0]


def test_every_finite_number_decodes_exactly() -> None:
    expected = FINITE.astype(np.float32)
    assert np.array_equal(decoded(FINITE).view(np.uint32), expected.view(np.uint32))
    assert np.array_equal(quantize(find("F16"), expected[None]), FINITE.view(np.uint8)[None])


def test_infinities_and_nan_stay_what_they_are() -> None:
    for bad in ALL[~np.isfinite(ALL)][::97]:
        mixed = FINITE[::301].copy()
        mixed[5] = bad
        expected = mixed.astype(np.float32)
        assert np.array_equal(decoded(mixed).view(np.uint32), expected.view(np.uint32))


def test_a_block_of_negative_zeros_has_a_scale_of_zero() -> None:
    rows = np.full((2, 32), -0.0, np.float32)
    assert not quantize(find("Q8_0"), rows).any()
