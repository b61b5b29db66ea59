"""Every way a safetensors header can lie is refused by name; what is legal is read."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from shards import write_raw, write_shard

from edgequant.errors import CheckpointError
from edgequant.source.header import MAX_HEADER_BYTES, read_header


def entry(dtype: str, shape: list[object], start: object, stop: object) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


GOOD = entry("F32", [2], 0, 8)

# What is wrong: (header, body bytes, message).
LIES = {
    "out of file": ({"a": entry("F32", [4], 0, 16)}, 8, "'a' ends at byte .*, but the file has"),
    "negative offset": ({"a": entry("F32", [2], -8, 0)}, 8, "'a' needs a dtype, a shape"),
    "backward offsets": ({"a": entry("F32", [2], 8, 0)}, 8, "'a' needs a dtype, a shape"),
    "three offsets": ({"a": {**GOOD, "data_offsets": [0, 8, 8]}}, 8, "'a' needs a dtype"),
    "offsets not integers": ({"a": entry("F32", [2], 0.0, 8.0)}, 8, "'a' needs a dtype"),
    "booleans as sizes": ({"a": entry("F32", [True, 2], 0, 8)}, 8, "'a' needs a dtype"),
    "huge size": ({"a": entry("F32", [1 << 63], 0, 8)}, 8, "'a' needs a dtype"),
    "wrapping shape": ({"a": entry("F32", [1 << 62, 1 << 2], 0, 0)}, 0, "'a' needs a dtype"),
    "empty but immense": ({"a": entry("F32", [0, 1 << 62], 0, 0)}, 0, "'a' needs a dtype"),
    "shape and offsets differ": ({"a": entry("F32", [3], 0, 8)}, 8, "takes 12 bytes.* hold 8"),
    "part of a byte": ({"a": entry("F4", [3], 0, 1)}, 1, "takes 1 bytes"),
    "overlap": ({"a": GOOD, "b": entry("F32", [2], 4, 12)}, 12, "'b' begins at byte"),
    "same bytes twice": ({"a": GOOD, "b": GOOD}, 8, "begins at byte .* ends at byte"),
    "hole": ({"a": GOOD, "b": entry("F32", [2], 12, 20)}, 20, "'b' begins at byte"),
    "hole at the start": ({"a": entry("F32", [2], 4, 12)}, 12, "'a' begins at byte"),
    "bytes left over": ({"a": GOOD}, 9, "the tensors end at byte .*, but the file has"),
    "unknown dtype": ({"a": entry("Q4", [2], 0, 8)}, 8, "'a' has the unknown dtype 'Q4'"),
    "endless name": ({"a" * 10_000: GOOD}, 8, "name has 10,000 characters, over the limit of 512"),
    "tensor is no object": ({"a": [1, 2]}, 8, "'a' needs a dtype"),
    "shape is missing": ({"a": {"dtype": "F32", "data_offsets": [0, 8]}}, 8, "'a' needs a dtype"),
    "header is a list": ([1, 2], 0, "the header is a list, not an object"),
    "duplicate key": (
        b'{"a":' + json.dumps(GOOD).encode() + b',"a":' + json.dumps(GOOD).encode() + b"}",
        8,
        "the header has 'a' twice",
    ),
    "not JSON": (b'{"a": ', 0, "the header of 6 bytes is not JSON"),
    "not UTF-8": (b'{"\xff": 1}', 0, "is not JSON"),
    "nested without end": (b"[" * 100_000, 0, "is not JSON"),
    "a number of 10,000 digits": (b'{"a": ' + b"9" * 10_000 + b"}", 0, "is not JSON"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_refused(tmp_path: Path, lie: str) -> None:
    header, body, message = LIES[lie]
    path = write_raw(tmp_path / "model.safetensors", header, bytes(body))
    with pytest.raises(CheckpointError, match=message) as caught:
        read_header(path)
    assert caught.value.what.startswith(f"{path}: ")


def test_a_header_longer_than_the_file_is_refused(tmp_path: Path) -> None:
    path = write_raw(tmp_path / "a.safetensors", {}, length=1000)
    with pytest.raises(CheckpointError, match="claims a header of 1,000 bytes, but only 2 bytes"):
        read_header(path)


def test_a_header_over_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", MAX_HEADER_BYTES + 1))
        file.truncate(MAX_HEADER_BYTES + 9)  # a hole, no real bytes
    with pytest.raises(CheckpointError, match=r"100,000,001 bytes, over the limit of 100,000,000"):
        read_header(path)


@pytest.mark.parametrize("size", range(8))
def test_a_file_shorter_than_its_first_number_is_refused(tmp_path: Path, size: int) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(bytes(size))
    with pytest.raises(CheckpointError, match=f"has {size} bytes, but a shard begins with 8"):
        read_header(path)


def test_a_git_lfs_pointer_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22e\n"
        "size 4976698672\n"
    )
    with pytest.raises(CheckpointError, match=r"git-lfs pointer of .* a file of 4976698672") as e:
        read_header(path)
    assert "git lfs pull" in e.value.hint


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_header(tmp_path / "model.safetensors")


def test_zero_sizes_and_metadata_are_legal(tmp_path: Path) -> None:
    header = {
        "__metadata__": {"format": "pt"},
        "empty": entry("F32", [0, 7], 0, 0),
        "a": GOOD,
        "last": entry("BF16", [0], 8, 8),
    }
    entries = read_header(write_raw(tmp_path / "a.safetensors", header, bytes(8)))
    assert list(entries) == ["empty", "a", "last"]
    assert entries["empty"].shape == (0, 7)


def test_an_empty_header_is_legal(tmp_path: Path) -> None:
    assert read_header(write_raw(tmp_path / "a.safetensors", {})) == {}


def test_every_cut_is_refused(tmp_path: Path, rng: np.random.Generator) -> None:
    tensors = {"a": rng.standard_normal((3, 4), np.float32), "b": np.ones(2, np.float16)}
    whole = write_shard(tmp_path / "a.safetensors", tensors).read_bytes()
    cut = tmp_path / "cut.safetensors"
    for size in range(len(whole)):
        cut.write_bytes(whole[:size])
        with pytest.raises(CheckpointError):
            read_header(cut)


def test_what_the_library_writes_is_read(tmp_path: Path, rng: np.random.Generator) -> None:
    tensors = {name: rng.standard_normal((5, 3), np.float32) for name in "xyz"}
    path = tmp_path / "a.safetensors"
    safetensors.numpy.save_file(tensors, path, metadata={"format": "np"})
    entries = read_header(path)
    data = path.read_bytes()
    for name, values in tensors.items():
        found = entries[name]
        assert (found.dtype, found.shape) == ("F32", (5, 3))
        assert data[found.start : found.stop] == values.tobytes()
