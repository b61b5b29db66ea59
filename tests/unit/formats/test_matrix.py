import numpy as np
import pytest

from edgequant.blocks import BLOCK_TYPES, Floats, TensorInfo, Weight
from edgequant.formats import dequantize, find, matrix, quantize
from edgequant.formats.matrix import Matrix


def weight(rows: Floats, name: str = "Q4_K") -> Weight:
    return Weight(TensorInfo("w", BLOCK_TYPES[name], rows.shape), quantize(find(name), rows))


@pytest.fixture
def rows(rng: np.random.Generator) -> Floats:
    return rng.normal(size=(11, 512)).astype(np.float32)


@pytest.fixture(params=[False, True], ids=["packed", "kept"])
def both(request: pytest.FixtureRequest, rows: Floats) -> Matrix:
    packed = Matrix(weight(rows))
    return packed.kept() if request.param else packed


def test_rows_and_numbers_and_chunks_agree(
    both: Matrix, rows: Floats, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix, "CHUNK_WEIGHTS", 3 * 512)
    whole = dequantize(find("Q4_K"), both.weight.data)
    assert both.shape == (11, 512)
    assert np.array_equal(both.rows(2, 5), whole[2:5])
    assert np.array_equal(both.take(np.array([7, 0, 7])), whole[[7, 0, 7]])
    chunks = list(both.chunks())
    assert [start for start, _ in chunks] == ([0] if both.whole is not None else [0, 3, 6, 9])
    assert np.array_equal(np.concatenate([part for _, part in chunks]), whole)


def test_a_vector_is_its_only_row(rows: Floats) -> None:
    info = TensorInfo("norm", BLOCK_TYPES["F32"], (512,))
    vector = Matrix(Weight(info, quantize(find("F32"), rows[:1]))).vector()
    assert np.array_equal(vector, rows[0])
