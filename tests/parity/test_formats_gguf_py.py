"""Decoding is gguf-py's, bit for bit, on blocks of random bytes and on corners."""

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgequant.blocks import Bytes, Floats
from edgequant.formats import QuantFormat, dequantize, find, names, quantize

pytestmark = pytest.mark.oracle
every_format = pytest.mark.parametrize(
    "fmt", [find(n) for n in names(encoded=False)], ids=lambda fmt: fmt.name
)
HALVES = ("d", "dmin", "m")


def theirs(fmt: QuantFormat, data: Bytes) -> Floats:
    with np.errstate(over="ignore", invalid="ignore"):
        decoded: Floats = gguf.quants.dequantize(data, gguf.GGMLQuantizationType[fmt.name])
    return decoded


def same_bits(fmt: QuantFormat, data: Bytes) -> bool:
    ours = dequantize(fmt, data)
    return np.array_equal(ours.view(np.uint32), theirs(fmt, data).view(np.uint32))


def random_blocks(fmt: QuantFormat, rng: np.random.Generator, rows: int, blocks: int) -> Bytes:
    """Every bit random, but scales finite: a NaN has many bit patterns."""
    data = rng.integers(0, 256, (rows, blocks * fmt.type.nbytes), dtype=np.uint8)
    if fmt.block.names is None:
        return quantize(fmt, rng.normal(size=(rows, blocks)).astype(np.float32))
    for name in set(HALVES) & set(fmt.block.names):
        bits = data.view(fmt.block)[name].view(np.uint16)
        bits[(bits & 0x7C00) == 0x7C00] ^= 0x4000
    return data


@every_format
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 4), blocks=st.integers(1, 9))
def test_random_blocks(fmt: QuantFormat, seed: int, rows: int, blocks: int) -> None:
    assert same_bits(fmt, random_blocks(fmt, np.random.default_rng(seed), rows, blocks))


@every_format
def test_many_blocks(fmt: QuantFormat, rng: np.random.Generator) -> None:
    assert same_bits(fmt, random_blocks(fmt, rng, 40, 4096 // fmt.type.weights * 2))


@every_format
@pytest.mark.parametrize("fill", [0x00, 0xFF, 0x0F, 0xF0, 0x80, 0x7F])
@pytest.mark.parametrize("scale", [0.0, -0.0, 6e-8, -1.0, 65504.0, -65504.0])
def test_corners(fmt: QuantFormat, fill: int, scale: float) -> None:
    if fmt.block.names is None:
        data = quantize(fmt, np.full((1, 8), scale, np.float32))
    else:
        data = np.full((2, 2 * fmt.type.nbytes), fill, np.uint8)
        for name in set(HALVES) & set(fmt.block.names):
            data.view(fmt.block)[name] = scale
    assert same_bits(fmt, data)


@pytest.mark.parametrize("name", ["F32", "F16", "BF16", "Q8_0"])
def test_encoding_is_theirs_too(name: str, rng: np.random.Generator) -> None:
    sizes = np.float32(10) ** rng.uniform(-6, 3, (64, 1)).astype(np.float32)
    rows = rng.normal(size=(64, 512)).astype(np.float32) * sizes
    rows[:, ::7] = np.round(rows[:, ::7] * 2) / 2  # ties
    rows[5] = 0
    encoded = gguf.quants.quantize(rows, gguf.GGMLQuantizationType[name])
    assert np.array_equal(quantize(find(name), rows), encoded.view(np.uint8))
