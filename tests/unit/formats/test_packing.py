import numpy as np
import pytest

from edgequant.formats import packing


def test_a_nibble_pair_has_its_first_in_the_low_half() -> None:
    packed = packing.pack_nibbles(np.array([[[1, 2], [10, 11]]], np.uint8))
    assert packed.tolist() == [[0xA1, 0xB2]]


def test_nibbles_come_back(rng: np.random.Generator) -> None:
    quants = rng.integers(0, 16, (7, 4, 2, 32), dtype=np.uint8)
    for dtype in (np.uint8, np.float32):
        out = np.empty(quants.shape, dtype)
        packing.unpack_nibbles(packing.pack_nibbles(quants), out)
        assert np.array_equal(out, quants)


def test_scales_lie_where_ggml_puts_them() -> None:
    scales = np.array([[1, 2, 3, 4, 0b100101, 6, 7, 8]], np.uint8)
    mins = np.array([[11, 12, 13, 14, 0b010011, 16, 17, 18]], np.uint8)
    packed = packing.pack_scales(scales, mins)[0]
    assert packed[0] == 1 | (0b10 << 6)  # top bits of scale 4 over scale 0
    assert packed[4] == 11 | (0b01 << 6)  # and of min 4 over min 0
    assert packed[8] == 0b0101 | (0b0011 << 4)  # low nibbles of scale 4 and min 4


def test_scales_come_back(rng: np.random.Generator) -> None:
    scales, mins = rng.integers(0, 64, (2, 50, 8), dtype=np.uint8)
    back = packing.unpack_scales(packing.pack_scales(scales, mins))
    assert np.array_equal(back, (scales, mins))


def test_a_four_has_its_first_in_the_lowest_bits() -> None:
    packed = packing.pack_pairs(np.array([[[1, 0], [2, 0], [3, 0], [0, 3]]], np.uint8))
    assert packed.tolist() == [[0b00111001, 0b11000000]]


def test_fours_come_back(rng: np.random.Generator) -> None:
    quants = rng.integers(0, 4, (7, 2, 4, 32), dtype=np.uint8)
    for dtype in (np.uint8, np.float32):
        out = np.empty(quants.shape, dtype)
        packing.unpack_pairs(packing.pack_pairs(quants), out)
        assert np.array_equal(out, quants)


@pytest.mark.parametrize("j", [0, 7, 8, 31])
def test_flag_j_is_bit_j(j: int) -> None:
    bits = np.zeros((1, 32), np.uint8)
    bits[0, j] = 1
    packed = packing.pack_bits(bits)
    assert packed.view("<u4")[0, 0] == 1 << j
    assert np.array_equal(packing.unpack_bits(packed), bits)
