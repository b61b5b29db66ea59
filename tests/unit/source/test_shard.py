"""Row slices of a shard are the bytes that were written, in every type."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shards import write_shard

from edgequant.errors import CheckpointError
from edgequant.source.shard import DTYPES, Shard


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_rows_are_what_was_written(
    tmp_path: Path, rng: np.random.Generator, dtype: np.dtype
) -> None:
    values = rng.standard_normal((13, 5)).astype(dtype)
    other = rng.standard_normal(7).astype(dtype)
    shard = Shard(write_shard(tmp_path / "a.safetensors", {"first": other, "a": values}))
    tensor = shard.tensor(shard.entries["a"])
    assert (tensor.name, tensor.shape, tensor.dtype) == ("a", (13, 5), dtype)
    for start, stop in ((0, 13), (0, 1), (12, 13), (3, 9), (4, 4)):
        rows = tensor.read(start, stop)
        assert rows.dtype == dtype
        assert rows.shape == (stop - start, 5)
        assert rows.tobytes() == values[start:stop].tobytes()
    vector = shard.tensor(shard.entries["first"])
    assert vector.read(2, 5).tobytes() == other[2:5].tobytes()


@given(st.integers(1, 40), st.data())
def test_any_cut_into_chunks_gives_the_whole(
    tmp_path_factory: pytest.TempPathFactory, rows: int, data: st.DataObject
) -> None:
    values = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)
    path = tmp_path_factory.getbasetemp() / "cut.safetensors"
    shard = Shard(write_shard(path, {"a": values}))
    tensor = shard.tensor(shard.entries["a"])
    cuts = sorted(data.draw(st.lists(st.integers(0, rows), max_size=5)))
    ends = zip([0, *cuts], [*cuts, rows], strict=True)
    np.testing.assert_array_equal(np.concatenate([tensor.read(*end) for end in ends]), values)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_a_tensor_of_no_weights_is_read(tmp_path: Path, shape: tuple[int, ...]) -> None:
    shard = Shard(write_shard(tmp_path / "a.safetensors", {"a": np.empty(shape, np.float32)}))
    assert shard.tensor(shard.entries["a"]).read(0, shape[0]).shape == shape


def test_a_file_that_went_away_is_named(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "a.safetensors", {"a": np.ones((4, 4), np.float32)})
    shard = Shard(path)
    path.unlink()
    with pytest.raises(CheckpointError, match=r"rows 1 to 2 of 'a' cannot be read"):
        shard.tensor(shard.entries["a"]).read(1, 2)
