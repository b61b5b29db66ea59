"""GGUF files both ways against gguf-py, and llama.cpp's own files byte for byte."""

import string
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgequant.blocks import BLOCK_TYPES, TensorInfo
from edgequant.gguf.reader import open_file
from edgequant.gguf.spec import KeyValue, ValueType, array
from edgequant.gguf.writer import open_output

pytestmark = pytest.mark.oracle

LIMITS = {
    ValueType.UINT8: (0, 255), ValueType.INT8: (-128, 127), ValueType.UINT16: (0, 65535),
    ValueType.INT16: (-32768, 32767), ValueType.UINT32: (0, 2**32 - 1),
    ValueType.INT32: (-(2**31), 2**31 - 1), ValueType.UINT64: (0, 2**64 - 1),
    ValueType.INT64: (-(2**63), 2**63 - 1),
}  # fmt: skip
SCALARS = {kind: st.integers(*limits) for kind, limits in LIMITS.items()} | {
    ValueType.FLOAT32: st.floats(width=32, allow_nan=False),
    ValueType.FLOAT64: st.floats(allow_nan=False),
    ValueType.BOOL: st.booleans(),
    ValueType.STRING: st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
}
KEY_NAMES = st.text(string.ascii_lowercase + "._", max_size=20).map("any.".__add__)


@st.composite  # gguf-py's writer refuses an empty array
def key_values(draw: st.DrawFn, smallest_array: int = 0) -> KeyValue:
    kind = draw(st.sampled_from(sorted(SCALARS)))
    if draw(st.booleans()):
        return KeyValue(kind, draw(SCALARS[kind]))
    return array(kind, draw(st.lists(SCALARS[kind], min_size=smallest_array, max_size=6)))


UNHURRIED = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@UNHURRIED
@given(keys=st.dictionaries(KEY_NAMES, key_values()))
def test_keys_return_as_they_were(tmp_path: Path, keys: dict[str, KeyValue]) -> None:
    path = tmp_path / "keys.gguf"
    with open_output(path, keys, [], force=True):
        pass
    with open_file(path) as file:
        assert dict(file.keys) == keys
        assert list(file.keys) == list(keys)


@UNHURRIED
@given(keys=st.dictionaries(KEY_NAMES, key_values(smallest_array=1)))
def test_gguf_py_reads_our_keys(tmp_path: Path, keys: dict[str, KeyValue]) -> None:
    path = tmp_path / "keys.gguf"
    with open_output(path, keys, [], force=True):
        pass
    fields = gguf.GGUFReader(path).fields
    assert {k: v for k, v in fields.items() if not k.startswith("GGUF.")}.keys() == keys.keys()
    for key, entry in keys.items():
        assert fields[key].contents() == entry.value
        types = [entry.type] if entry.item is None else [entry.type, entry.item]
        assert [int(kind) for kind in fields[key].types[:2]] == types


@UNHURRIED
@given(keys=st.dictionaries(KEY_NAMES, key_values(smallest_array=1)))
def test_we_read_gguf_pys_keys(tmp_path: Path, keys: dict[str, KeyValue]) -> None:
    path = tmp_path / "keys.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for key, entry in keys.items():
        kind = gguf.GGUFValueType(entry.type)
        item = None if entry.item is None else gguf.GGUFValueType(entry.item)
        writer.add_key_value(key, entry.value, kind, item)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with open_file(path) as file:
        assert {k: v for k, v in file.keys.items() if k != "general.architecture"} == keys


TENSORS = [
    TensorInfo(f"{name}.{len(shape)}", BLOCK_TYPES[name], (*shape, 2 * BLOCK_TYPES[name].weights))
    for name in gguf.GGMLQuantizationType.__members__
    if name not in ("Q8_1", "Q8_K")  # of activations; never in a file
    for shape in ((), (3,), (2, 1, 3))
]


def test_gguf_py_reads_our_tensors(tmp_path: Path, rng: np.random.Generator) -> None:
    path = tmp_path / "tensors.gguf"
    rows = {i.name: rng.integers(0, 256, (i.rows, i.nbytes // i.rows), np.uint8) for i in TENSORS}
    with open_output(path, {"general.alignment": 64}, TENSORS) as output:
        for info in TENSORS:
            output.append(info.name, rows[info.name])
    theirs = gguf.GGUFReader(path).tensors
    assert [t.name for t in theirs] == [info.name for info in TENSORS]
    for info, tensor in zip(TENSORS, theirs, strict=True):
        assert tensor.tensor_type.name == info.type.name
        assert tuple(tensor.shape.tolist())[::-1] == info.shape
        assert tensor.data.tobytes() == rows[info.name].tobytes()


def test_we_read_gguf_pys_tensors(tmp_path: Path, rng: np.random.Generator) -> None:
    path = tmp_path / "tensors.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    rows: dict[str, Any] = {}
    for info in TENSORS:
        shape = (*info.shape[:-1], info.type.row_nbytes(info.columns))
        rows[info.name] = rng.integers(0, 256, shape, np.uint8)
        kind = gguf.GGMLQuantizationType[info.type.name]
        writer.add_tensor(info.name, rows[info.name], raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with open_file(path) as file:
        assert list(file.tensors.values()) == TENSORS
        for name, weight in file.weights().items():
            assert weight.data.tobytes() == rows[name].tobytes()


ORACLES = ("books-6m-q4_k_m", "books-6m-q4_k_m-noim", "books-6m.imatrix", "books-54m.imatrix")


@pytest.mark.shared
@pytest.mark.parametrize("name", ORACLES)
def test_we_read_llama_cpps_files_as_gguf_py_does(shared: Path, name: str) -> None:
    path = shared / "oracle" / f"{name}.gguf"
    theirs = gguf.GGUFReader(path)
    with open_file(path) as file:
        fields = {k: v.contents() for k, v in theirs.fields.items() if not k.startswith("GGUF.")}
        assert file.values() == fields
        assert list(file.tensors) == [t.name for t in theirs.tensors]
        weights = file.weights()
        for tensor in theirs.tensors:
            assert weights[tensor.name].type.name == tensor.tensor_type.name
            assert weights[tensor.name].shape == tuple(tensor.shape.tolist())[::-1]
            assert weights[tensor.name].data.tobytes() == tensor.data.tobytes()


@pytest.mark.shared
@pytest.mark.parametrize("name", ORACLES)
def test_a_copy_of_llama_cpps_file_is_the_file(shared: Path, tmp_path: Path, name: str) -> None:
    path, copy = shared / "oracle" / f"{name}.gguf", tmp_path / "copy.gguf"
    with open_file(path) as file:
        weights = file.weights()
        with open_output(copy, file.keys, list(file.tensors.values()), inputs=[path]) as output:
            for tensor, weight in weights.items():
                output.append(tensor, weight.data)
    assert copy.read_bytes() == path.read_bytes()
