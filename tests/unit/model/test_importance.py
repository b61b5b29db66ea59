"""Importance matrices: both forms on disk, what is refused, and what the numbers mean."""

import contextlib
import struct
from pathlib import Path

import numpy as np
import pytest
from toys import toy_importance, write_toy_importance

from edgequant.blocks import BLOCK_TYPES, TensorInfo
from edgequant.errors import EdgequantError, FileError, ImatrixError
from edgequant.gguf.reader import open_file
from edgequant.gguf.writer import open_output
from edgequant.model.imatrix_file import read_importance, write_importance
from edgequant.model.importance import Entry, ImportanceMatrix, stacked

F32 = BLOCK_TYPES["F32"]


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def write_raw(path: Path, tensors: dict[str, np.ndarray], **changed: object) -> Path:
    keys: dict[str, object] = {
        "general.type": "imatrix", "imatrix.datasets": ["a.txt"], "imatrix.chunk_count": 3,
        "imatrix.chunk_size": 512,
    }  # fmt: skip
    keys = {k: v for k, v in (keys | changed).items() if v is not None}
    infos = [TensorInfo(name, F32, array.shape) for name, array in tensors.items()]
    with open_output(path, keys, infos) as output:
        for info in infos:
            output.append(info.name, np.ascontiguousarray(tensors[info.name]).view(np.uint8))
    return path


def legacy(entries: dict[str, tuple[int, list[float]]], *, tail: bytes = b"") -> bytes:
    raw = struct.pack("<i", len(entries))
    for name, (calls, values) in entries.items():
        raw += struct.pack("<i", len(name)) + name.encode()
        raw += struct.pack("<ii", calls, len(values)) + np.array(values, "<f4").tobytes()
    return raw + tail


@pytest.mark.parametrize("experts", [0, 4])
def test_what_is_written_is_read(tmp_path: Path, rng: np.random.Generator, experts: int) -> None:
    matrix = toy_importance(rng, experts=experts)
    write_importance(tmp_path / "i.gguf", matrix)
    again = read_importance(tmp_path / "i.gguf")
    assert (again.datasets, again.chunk_count, again.chunk_size) == (("text.txt",), 2, 512)
    assert list(again.entries) == sorted(matrix.entries)
    for name, entry in matrix.entries.items():
        np.testing.assert_array_equal(again.entries[name].in_sum2, entry.in_sum2)
        np.testing.assert_array_equal(again.entries[name].counts, entry.counts)


def test_the_form_on_disk_is_llama_cpps(tmp_path: Path, rng: np.random.Generator) -> None:
    path = write_toy_importance(tmp_path / "i.gguf", rng, experts=4)
    with open_file(path) as file:
        assert list(file.tensors) == sorted(file.tensors, key=lambda n: n.rsplit(".", 1)[0])
        shapes = {name: info.shape for name, info in file.tensors.items()}
    assert shapes["blk.0.attn_q.weight.in_sum2"] == (256,)
    assert shapes["blk.0.attn_q.weight.counts"] == (1,)
    assert shapes["blk.0.ffn_up_exps.weight.in_sum2"] == (4, 256)
    assert shapes["blk.0.ffn_up_exps.weight.counts"] == (4, 1)


def test_the_mean_is_by_token_and_one_where_none_was_seen() -> None:
    entry = Entry(np.stack([floats(2, 8), floats(0, 0)]), floats(4, 0))
    np.testing.assert_array_equal(entry.mean(), [[0.5, 2], [1, 1]])
    assert entry.unseen == 1
    assert entry.zero_share == 0
    assert Entry(floats(0, 1, 0, 2)[None], floats(4)).zero_share == 0.5
    assert Entry(floats(0, 0)[None], floats(0)).zero_share == 0
    matrix = ImportanceMatrix({"a": entry}, (), 1, 512)
    assert matrix.mean("b") is None


def test_one_count_serves_all_matrices(tmp_path: Path) -> None:
    path = write_raw(tmp_path / "i.gguf", {
        "a.in_sum2": np.ones((3, 4), np.float32), "a.counts": floats(7),
    })  # fmt: skip
    np.testing.assert_array_equal(read_importance(path).entries["a"].counts, [7, 7, 7])


def test_a_legacy_file(tmp_path: Path) -> None:
    path = tmp_path / "i.dat"
    name = b"books.txt"
    tail = struct.pack("<ii", 40, len(name)) + name
    path.write_bytes(legacy({"blk.0.attn_q.weight": (4, [2, 8])}, tail=tail))
    matrix = read_importance(path)
    np.testing.assert_array_equal(matrix.mean("blk.0.attn_q.weight"), [[0.5, 2]])
    assert (matrix.datasets, matrix.chunk_count, matrix.chunk_size) == (("books.txt",), 40, None)
    path.write_bytes(legacy({"blk.0.attn_q.weight": (4, [2, 8])}))
    assert read_importance(path).chunk_count == 0
    with pytest.raises(ValueError, match="not known"):
        write_importance(tmp_path / "o.gguf", matrix)


def test_a_legacy_files_experts_lie_in_a_row(tmp_path: Path) -> None:
    path = tmp_path / "i.dat"
    path.write_bytes(legacy({"blk.0.ffn_up_exps.weight": (2, [2, 4, 6, 8])}))
    info = TensorInfo("blk.0.ffn_up_exps.weight", BLOCK_TYPES["F16"], (2, 5, 2))
    assert stacked(info) == 2
    fitted = read_importance(path).fitted([info], "i.dat")
    np.testing.assert_array_equal(fitted.mean(info.name), [[1, 2], [3, 4]])


GOOD = legacy({"blk.0.attn_q.weight": (4, [2, 8])})


@pytest.mark.parametrize(("content", "message"), [
    (b"", "4 bytes are needed at byte 0 for the number of entries, but 0 are left"),
    (struct.pack("<i", 0), "it would have 0 entries in 0 bytes"),
    (struct.pack("<i", -5), "it would have -5 entries"),
    (GOOD[:-1], "8 bytes are needed at byte 35 for the values of 'blk.0.attn_q.weight'"),
    (struct.pack("<iiq", 1, -1, 0), "-1 bytes are needed at byte 8 for the name of entry 0"),
    (struct.pack("<iiq", 1, 1 << 30, 0), "1,073,741,824 bytes are needed at byte 8"),
    (struct.pack("<ii4sii", 1, 4, b"name", 1, 1 << 30), "4,294,967,296 bytes are needed"),
    (legacy({"a": (1, [float("nan")])}), "'a' has a sum of squares of nan at 0"),
    (legacy({"a": (1, [1, -3])}), "'a' has a sum of squares of -3.0 at 1"),
    (legacy({"a": (-2, [1])}), "'a' has a count of -2.0"),
    (legacy({"a": (1, [])}), "'a' has 0 values"),
    (struct.pack("<i", 2) + legacy({"a": (1, [1])})[4:] * 2, "'a' is there twice"),
    (b"This is a text file, no imatrix.", "bad.dat: is a text file; as an importance matrix it "
     "would have 1,936,287,828 entries in 28 bytes"),
    (b"version https://git-lfs.github.com/spec/v1\noid", "bad.dat: is a git-lfs pointer"),
])  # fmt: skip
def test_bad_legacy_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.dat"
    path.write_bytes(content)
    with pytest.raises(ImatrixError, match="bad") as caught:
        read_importance(path)
    assert message in caught.value.what


def test_every_cut_and_flip_of_a_legacy_file_is_our_error(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    path = tmp_path / "bad.dat"
    whole = legacy({"blk.0.a": (4, [2, 8]), "blk.0.b": (1, [1])})
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        with pytest.raises(EdgequantError):
            read_importance(path)
    for _ in range(500):
        flipped = bytearray(whole)
        flipped[rng.integers(len(whole))] = rng.integers(256)
        path.write_bytes(flipped)
        with contextlib.suppress(EdgequantError):
            read_importance(path)


A = {"a.in_sum2": floats(1, 2), "a.counts": floats(4)}


@pytest.mark.parametrize(("tensors", "keys", "message"), [
    (A, {"general.type": "model"}, "a GGUF file, but not an importance matrix"),
    (A, {"imatrix.chunk_count": None}, "has no key 'imatrix.chunk_count'"),
    ({"x": floats(1)}, {}, "an importance matrix of 0 entries"),
    ({"a.in_sum2": floats(1)}, {}, "'a.counts' is missing"),
    (A | {"a.counts": floats(1, 2, 3)}, {}, "'a' has 3 counts for 1 matrices"),
    (A | {"a.in_sum2": floats(1, np.inf)}, {}, "'a' has a sum of squares of inf at 1"),
    (A | {"a.counts": floats(-1)}, {}, "'a' has a count of -1.0 at 0"),
])  # fmt: skip
def test_bad_gguf_files(
    tmp_path: Path, tensors: dict[str, np.ndarray], keys: dict[str, object], message: str
) -> None:
    path = write_raw(tmp_path / "bad.gguf", tensors, **keys)
    with pytest.raises(EdgequantError, match="bad") as caught:
        read_importance(path)
    assert message in caught.value.what


def test_only_float32_is_read(tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    keys = {"general.type": "imatrix", "imatrix.chunk_count": 1, "imatrix.chunk_size": 1}
    with open_output(path, keys, [TensorInfo("a.in_sum2", BLOCK_TYPES["F16"], (2,))]) as output:
        output.append("a.in_sum2", np.zeros(4, np.uint8))
    with pytest.raises(ImatrixError, match=r"'a\.in_sum2' is F16 of 2 values, not F32"):
        read_importance(path)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="No such file"):
        read_importance(tmp_path / "none.gguf")


@pytest.mark.parametrize(("info", "message"), [
    (TensorInfo("other", F32, (2, 2)), "'a' is not a tensor of the model (1 entries, 1 tensors)"),
    (TensorInfo("a", F32, (2, 4096)), "'a' has 2 columns, not 4,096"),
    (TensorInfo("a", F32, (8, 2, 2)), "'a' has 1 matrices, not 8"),
])  # fmt: skip
def test_an_importance_matrix_of_another_model(info: TensorInfo, message: str) -> None:
    matrix = ImportanceMatrix({"a": Entry(floats(1, 2)[None], floats(1))}, (), 1, 512)
    with pytest.raises(ImatrixError) as caught:
        matrix.fitted([info], "i.gguf")
    assert message in caught.value.what
