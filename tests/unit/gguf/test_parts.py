"""Models in several files: what is written is read as one, and what does not fit is named."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgequant.blocks import BLOCK_TYPES, TensorInfo
from edgequant.errors import EdgequantError, FileError, GGUFError
from edgequant.gguf.layout import lay_out
from edgequant.gguf.parts import COUNT, NUMBER, TENSORS
from edgequant.gguf.reader import open_file
from edgequant.gguf.spec import KeyValue, ValueType
from edgequant.gguf.writer import open_output

F32 = BLOCK_TYPES["F32"]
INFOS = [TensorInfo(f"t{i}", F32, (10 + i, 8)) for i in range(6)]  # 320 to 480 bytes
KEYS = {"general.name": "ours", "tokens": ["a", "bc"]}


def rows_of(info: TensorInfo) -> np.ndarray:
    return np.full((info.rows, 32), int(info.name[1:]) + 1, np.uint8)


def write(
    path: Path, limit: int | None, infos: list[TensorInfo] = INFOS, **options: Any
) -> list[Path]:
    with open_output(
        path, options.pop("keys", KEYS), infos, part_nbytes=limit, **options
    ) as output:
        for info in infos:
            output.append(info.name, rows_of(info))
    return list(output.paths)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize("limit", [700, 1000, 1200, 10000])
def test_parts_are_no_larger_than_asked_for_and_read_as_one(tmp_path: Path, limit: int) -> None:
    paths = write(tmp_path / "m.gguf", limit)
    count = len(paths)
    assert [p.name for p in paths] == [f"m-{i + 1:05}-of-{count:05}.gguf" for i in range(count)]
    assert names(tmp_path) == sorted(p.name for p in paths)
    assert all(p.stat().st_size <= limit for p in paths)
    assert (count == 1) is (limit == 10000)
    with open_file(paths[0]) as file:
        assert file.values() == KEYS
        assert list(file.tensors.values()) == INFOS
        assert file.paths == tuple(paths)
        assert file.nbytes == sum(p.stat().st_size for p in paths)
        weights = file.weights()
    assert weights.path == paths[0]
    assert [m.nbytes for m in weights.mappings] == [p.stat().st_size for p in paths]
    for info in INFOS:
        np.testing.assert_array_equal(weights[info.name].data, rows_of(info))


def test_what_parts_say_of_the_set(tmp_path: Path) -> None:
    parts = lay_out(tmp_path / "m.gguf", KEYS | {"general.alignment": 64}, INFOS, 1200)
    write(tmp_path / "m.gguf", 1200, keys=KEYS | {"general.alignment": 64})
    for number, part in enumerate(parts):
        assert part.path.read_bytes()[: len(part.head)] == part.head
        assert part.path.stat().st_size == part.nbytes
        shutil.copy(part.path, tmp_path / "alone.gguf")
        content = bytearray((tmp_path / "alone.gguf").read_bytes())
        said = {NUMBER: (number, ValueType.UINT16), COUNT: (len(parts), ValueType.UINT16),
                TENSORS: (len(INFOS), ValueType.INT32)}  # fmt: skip
        for key, (value, kind) in said.items():
            at = content.index(key.encode()) + len(key)
            assert int.from_bytes(content[at : at + 4], "little") == kind
            width = 2 if kind is ValueType.UINT16 else 4
            assert int.from_bytes(content[at + 4 : at + 4 + width], "little") == value
        assert (b"general.name" in part.head) is (number == 0)
        assert b"general.alignment" in part.head


def test_a_first_part_may_hold_keys_alone(tmp_path: Path) -> None:
    paths = write(tmp_path / "m.gguf", 700, keys={"long": "x" * 400})
    with open_file(paths[0]) as file:
        assert list(file.tensors.values()) == INFOS
        assert file.value("long", str) == "x" * 400
    assert paths[0].stat().st_size < 700
    assert b"t0" not in paths[0].read_bytes()


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        (100, r"m.gguf: its keys take 192 bytes, more than the 100 that a part may have"),
        (600, r"m.gguf: a part with only 't4' takes 608 bytes, more than the 600"),
    ],
)
def test_sizes_that_hold_nothing(tmp_path: Path, limit: int, message: str) -> None:
    with pytest.raises(FileError, match=message) as caught:
        write(tmp_path / "m.gguf", limit)
    assert "--split-max-size" in caught.value.hint
    assert names(tmp_path) == []


def test_too_many_parts(tmp_path: Path) -> None:
    infos = [TensorInfo(f"t{i}", F32, (4,)) for i in range(65537)]
    with pytest.raises(FileError, match=r"would be [\d,]+ parts of 192 bytes; at most 65,535"):
        lay_out(tmp_path / "m.gguf", {}, infos, 192)


def test_a_model_read_from_parts_is_written_as_one(tmp_path: Path) -> None:
    first, *_ = write(tmp_path / "m.gguf", 1200)
    write(tmp_path / "whole.gguf", None)
    with open_file(first) as file, open_output(tmp_path / "one.gguf", file.keys, INFOS) as output:
        for name, weight in file.weights().items():
            output.append(name, weight.data)
    assert (tmp_path / "one.gguf").read_bytes() == (tmp_path / "whole.gguf").read_bytes()


def test_every_part_is_checked_before_any_is_written(tmp_path: Path) -> None:
    third = tmp_path / "m-00003-of-00003.gguf"
    third.write_bytes(b"theirs")
    with pytest.raises(FileError, match=r"m-00003-of-00003.gguf: exists\."):
        write(tmp_path / "m.gguf", 1200)
    assert names(tmp_path) == [third.name]
    with pytest.raises(FileError, match="is the input"):
        write(tmp_path / "m.gguf", 1200, force=True, inputs=[third])
    paths = write(tmp_path / "m.gguf", 1200, force=True)
    with open_file(paths[0]) as file:
        assert len(file.tensors) == 6


def test_what_fails_leaves_no_part(tmp_path: Path) -> None:
    def fail() -> None:
        with open_output(tmp_path / "m.gguf", KEYS, INFOS, part_nbytes=1200) as output:
            for info in INFOS[:5]:
                output.append(info.name, rows_of(info))
            assert len(names(tmp_path)) == 3
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert names(tmp_path) == []


def test_an_old_set_is_not_mixed_with_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop between two renames leaves no first part, so that nothing opens."""
    paths = write(tmp_path / "m.gguf", 1200)
    rename = Path.replace

    def stop(self: Path, target: Path) -> Path:
        if target == paths[1]:
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "m.gguf", 1200, force=True)
    assert names(tmp_path) == [p.name for p in paths[1:]]
    for path in paths[1:]:
        with pytest.raises(GGUFError, match=r"is part \d of 3 of a model"):
            open_file(path)


def test_a_set_that_is_not_complete(tmp_path: Path) -> None:
    first, second, third = write(tmp_path / "m.gguf", 1200)
    with pytest.raises(GGUFError, match=r"m-00002-of-00003.gguf: is part 2 of 3 of a mo") as caught:
        open_file(second)
    assert "m-00001-of-00003.gguf; it opens all" in caught.value.hint
    third.rename(tmp_path / "away.gguf")
    with pytest.raises(
        FileError, match=r"m-00001-of-00003.gguf: 1 of its 3 parts are missing: m-00003-of-00003"
    ):
        open_file(first)
    first.rename(tmp_path / "first.gguf")
    with pytest.raises(GGUFError, match=r"does not end in -00001-of-00003\.gguf"):
        open_file(tmp_path / "first.gguf")


@pytest.mark.parametrize(
    ("other", "limit", "message"),
    [
        ([*INFOS, TensorInfo("t9", F32, (8,))], 1200, r"split.tensors.count is 7, but 6 in its"),
        (
            [*INFOS[2:4], *INFOS[:2], *INFOS[4:]],
            1200,
            r"has tensor 't\d', which m-0000\d-of-00003.gguf has too",
        ),
    ],
)
def test_a_part_of_another_model(
    tmp_path: Path, other: list[TensorInfo], limit: int, message: str
) -> None:
    paths = write(tmp_path / "m.gguf", limit)
    (tmp_path / "other").mkdir()
    theirs = write(tmp_path / "other" / "m.gguf", limit, other)
    assert len(theirs) == len(paths) == 3
    shutil.copy(theirs[1], paths[1])
    with pytest.raises(GGUFError, match=message):
        open_file(paths[0])


def test_a_part_in_another_place(tmp_path: Path) -> None:
    first, second, third = write(tmp_path / "m.gguf", 1200)
    shutil.copy(second, third)
    with pytest.raises(
        GGUFError, match=r"m-00003-of-00003.gguf: split.no is 1, but 2 in its place in the model"
    ):
        open_file(first)
    write(tmp_path / "n.gguf", 700)
    shutil.copy(tmp_path / "n-00002-of-00006.gguf", second)
    with pytest.raises(GGUFError, match=r"split.count is 6, but 3 in its place"):
        open_file(first)
    second.write_bytes(second.read_bytes()[:100])
    with pytest.raises(GGUFError, match=r"m-00002-of-00003.gguf: "):
        open_file(first)


U16, I32 = ValueType.UINT16, ValueType.INT32


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({}, "is a part of a model, but split.no is absent"),
        ({NUMBER: KeyValue(U16, 2)}, "says it is part 3 of 2; at most 65,535 are possible"),
        ({NUMBER: KeyValue(I32, -1)}, "says it is part 0 of 2;"),
        ({NUMBER: 0, COUNT: 10**18}, "says it is part 1 of 1,000,000,000,000,000,000; at most"),
        ({NUMBER: "one"}, r"split.no is 'one' \(STRING\)"),
        ({NUMBER: KeyValue(U16, 0)}, "split.tensors.count is absent"),
        ({NUMBER: KeyValue(U16, 0), TENSORS: KeyValue(I32, 8)}, "hold 7 tensors, but .* is 8"),
    ],
)
def test_what_a_part_says_must_be_possible(
    tmp_path: Path, said: dict[str, object], message: str
) -> None:
    path, other = tmp_path / "m-00001-of-00002.gguf", tmp_path / "m-00002-of-00002.gguf"
    count: dict[str, object] = {COUNT: KeyValue(U16, 2)}
    write(
        other, None, [TensorInfo("t7", F32, (8,))], keys=count | {**said, NUMBER: KeyValue(U16, 1)}
    )
    write(path, None, keys=count | said)
    with pytest.raises(EdgequantError, match=message):
        open_file(path)


def test_one_of_one_is_a_model_by_itself(tmp_path: Path) -> None:
    (path,) = write(tmp_path / "m.gguf", 10000)
    path.rename(tmp_path / "any.gguf")
    with open_file(tmp_path / "any.gguf") as file:
        assert file.values() == KEYS
