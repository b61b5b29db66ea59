"""Sound files, also unusual ones, read as they should be."""

import struct
import sys
import tracemalloc
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pytest

from edgequant.blocks import BLOCK_TYPES, TensorInfo
from edgequant.errors import GGUFError
from edgequant.gguf.reader import open_file
from edgequant.gguf.spec import KeyValue, ValueType, typed
from edgequant.gguf.writer import open_output

SCALARS = {
    ValueType.UINT8: ("<B", 255), ValueType.INT8: ("<b", -128), ValueType.UINT16: ("<H", 65535),
    ValueType.INT16: ("<h", -32768), ValueType.UINT32: ("<I", 4294967295),
    ValueType.INT32: ("<i", -2147483648), ValueType.FLOAT32: ("<f", 0.5),
    ValueType.BOOL: ("<?", True), ValueType.UINT64: ("<Q", (1 << 64) - 1),
    ValueType.INT64: ("<q", -(1 << 63)), ValueType.FLOAT64: ("<d", 0.1),
}  # fmt: skip


@pytest.mark.parametrize("kind", SCALARS, ids=lambda kind: kind.name)
def test_each_type_of_number(forge: Any, kind: ValueType) -> None:
    layout, value = SCALARS[kind]
    one = struct.pack(layout, value)
    file = forge.open(
        forge.file([forge.key("one", kind, one), forge.array("two", kind, 2, one * 2)])
    )
    assert file.keys["one"] == KeyValue(kind, value)
    assert file.keys["two"] == KeyValue(ValueType.ARRAY, [value, value], kind)
    assert file.values() == {"one": value, "two": [value, value]}
    assert type(file.values()["one"]) is type(value)


def test_an_array_is_a_sequence(forge: Any) -> None:
    payload = forge.text("a") + forge.text("") + forge.text("日本")
    array = forge.open(forge.file([forge.array("t", ValueType.STRING, 3, payload)])).keys["t"].value
    assert len(array) == 3
    assert list(array) == ["a", "", "日本"]
    assert array[-1] == "日本"
    assert array[:2] == ["a", ""]
    assert array.first(1) == ["a"]
    assert array.first(9) == ["a", "", "日本"]
    assert array != ["a"]
    assert array != "a"
    assert repr(array) == "<3 x STRING>"


def test_odd_bytes_of_a_vocabulary_stay_distinct(forge: Any) -> None:
    payload = forge.text(b"\xff") + forge.text(b"\xfe")
    tokens = forge.open(forge.file([forge.array("t", ValueType.STRING, 2, payload)])).values()["t"]
    assert [token.encode("utf-8", "surrogateescape") for token in tokens] == [b"\xff", b"\xfe"]


def test_no_tensors(forge: Any) -> None:
    file = forge.open(forge.file([forge.u32("k", 1)])[:-8])  # not even padded
    assert dict(file.tensors) == {}
    assert len(file.weights()) == 0
    assert forge.open(forge.file(alignment=1)).values() == {}


def test_version_2_is_read_alike(forge: Any) -> None:
    file = forge.open(forge.file([forge.u32("k", 7)], version=2))
    assert file.version == 2
    assert file.values() == {"k": 7}


def test_tensors_are_views_in_rows(forge: Any) -> None:
    entries = [
        forge.tensor("late", [4], kind=0, offset=64),
        forge.tensor("cube", [32, 2, 3], kind=8, offset=128),
        forge.tensor("early", [8, 2], kind=30),
        forge.tensor("number", [], kind=26, offset=80 + 16),
    ]
    content = bytes(range(128)) + bytes(204)
    file = forge.open(forge.file(tensors=entries, data=content))
    assert list(file.tensors) == ["late", "cube", "early", "number"]
    weights = file.weights()
    assert {n: (w.type.name, w.shape, w.data.shape) for n, w in weights.items()} == {
        "late": ("F32", (4,), (1, 16)),
        "cube": ("Q8_0", (3, 2, 32), (6, 34)),
        "early": ("BF16", (2, 8), (2, 16)),
        "number": ("I32", (), (1, 4)),
    }
    assert weights["early"].data.tobytes() == bytes(range(32))
    assert weights["late"].data.tobytes() == bytes(range(64, 80))
    assert weights.path == forge.path
    assert weights.mappings[0].nbytes == file.nbytes == forge.path.stat().st_size
    assert weights.mappings[0].readonly
    with pytest.raises(ValueError, match="read-only"):
        weights["early"].data[0, 0] = 1


def test_alignment_is_obeyed(forge: Any) -> None:
    keys = [forge.u32("general.alignment", 128)]
    entries = [forge.tensor("a", [4]), forge.tensor("b", [4], offset=128)]
    data = bytes([1]) * 128 + bytes([2]) * 16
    with forge.open(forge.file(keys, entries, data, alignment=128)) as file:
        assert file.alignment == 128
        assert set(file.weights()["b"].data.ravel().tolist()) == {2}


def test_views_outlive_the_file(forge: Any) -> None:
    with forge.open(forge.file(tensors=[forge.tensor("a", [8])], data=bytes(range(32)))) as file:
        weights = file.weights()
        rows = weights["a"].data
    file.close()
    assert rows.tobytes() == bytes(range(32))
    assert weights.mappings[0][:4] == b"GGUF"
    with pytest.raises(ValueError, match="closed"):
        file.weights()


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="has no /proc")
def test_the_mapping_goes_with_the_last_view(forge: Any) -> None:
    def mapped() -> bool:
        return str(forge.path) in Path("/proc/self/maps").read_text()

    with forge.open(forge.file(tensors=[forge.tensor("a", [8])], data=bytes(32))) as file:
        weights = file.weights()
    assert mapped()
    del weights
    assert not mapped()


def test_nothing_of_the_mapping_is_copied(forge: Any) -> None:
    size = 256 << 20
    forge.path.write_bytes(forge.file(tensors=[forge.tensor("a", [1024, size // 4096])]))
    with forge.path.open("r+b") as file:
        file.truncate(forge.path.stat().st_size + size)
    tracemalloc.start()
    try:
        with open_file(forge.path) as opened:
            assert opened.weights()["a"].data.nbytes == size
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_values_are_typed(forge: Any) -> None:
    keys = [
        forge.u32("int", 3),
        forge.key("float", ValueType.FLOAT32, struct.pack("<f", 0.5)),
        forge.key("bool", ValueType.BOOL, b"\x01"),
        forge.key("str", ValueType.STRING, forge.text("word")),
        forge.array("list", ValueType.UINT8, 2, b"\x01\x02"),
    ]
    file = forge.open(forge.file(keys))
    assert file.value("int", int) == 3
    assert file.value("int", float) == 3.0
    assert type(file.value("int", float)) is float
    assert file.value("float", float) == 0.5
    assert file.value("bool", bool) is True
    assert file.value("str", str) == "word"
    assert file.value("list", list) == [1, 2]
    assert file.value("absent", int, 5) == 5
    with pytest.raises(GGUFError, match=r"forged.gguf: has no key 'absent'\."):
        file.value("absent", int)
    for key, kind in (("bool", int), ("str", int), ("float", int), ("list", str)):
        with pytest.raises(GGUFError, match=rf"key '{key}' is a {key}, not a {kind.__name__}\."):
            file.value(key, kind)


def test_a_large_vocabulary_opens_at_once(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.gguf"
    tokens = [f"token {number}" for number in range(128_256)]
    merges = [f"left{number} right{number}" for number in range(280_147)]
    with open_output(path, {"tokens": tokens, "merges": merges, "types": [1] * 128_256}, []):
        pass
    seconds = []
    for _ in range(3):
        start = process_time()
        with open_file(path) as file:
            assert len(file.keys["merges"].value) == 280_147  # type: ignore[arg-type]
            assert file.keys["tokens"].value.first(2) == tokens[:2]  # type: ignore[attr-defined]
        seconds.append(process_time() - start)
    assert min(seconds) < 0.3
    with open_file(path) as file:
        assert file.values() == {"tokens": tokens, "merges": merges, "types": [1] * 128_256}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, KeyValue(ValueType.BOOL, True)),
        ("word", KeyValue(ValueType.STRING, "word")),
        (0, KeyValue(ValueType.UINT32, 0)),
        (1 << 31, KeyValue(ValueType.UINT32, 1 << 31)),
        (1 << 32, KeyValue(ValueType.UINT64, 1 << 32)),
        (-1, KeyValue(ValueType.INT32, -1)),
        (-(1 << 40), KeyValue(ValueType.INT64, -(1 << 40))),
        (0.5, KeyValue(ValueType.FLOAT32, 0.5)),
        (["a"], KeyValue(ValueType.ARRAY, ["a"], ValueType.STRING)),
        ([], KeyValue(ValueType.ARRAY, [], ValueType.STRING)),
        ([1, -2], KeyValue(ValueType.ARRAY, [1, -2], ValueType.INT32)),
        ([1 << 31], KeyValue(ValueType.ARRAY, [1 << 31], ValueType.INT64)),
        ([1.5, 2], KeyValue(ValueType.ARRAY, [1.5, 2], ValueType.FLOAT32)),
        ([True, False], KeyValue(ValueType.ARRAY, [True, False], ValueType.BOOL)),
        (KeyValue(ValueType.INT8, 1), KeyValue(ValueType.INT8, 1)),
    ],
)
def test_plain_values_get_llama_cpps_types(value: object, expected: KeyValue) -> None:
    assert typed(value) == expected


@pytest.mark.parametrize("value", [None, {"a": 1}, ["a", 1], [True, 1], [[1]]])
def test_what_no_type_holds_is_a_bug(value: object) -> None:
    with pytest.raises(TypeError):
        typed(value)


def test_reading_needs_neither_gguf_py_nor_click() -> None:
    import subprocess

    code = "import sys, edgequant.gguf.writer; sys.exit(bool({'gguf', 'click'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_infos_size_themselves(forge: Any) -> None:
    file = forge.open(forge.file(tensors=[forge.tensor("a", [8, 4])], data=bytes(128)))
    assert file.tensors["a"] == TensorInfo("a", BLOCK_TYPES["F32"], (4, 8))
    assert np.prod(file.weights()["a"].data.shape) == 128
