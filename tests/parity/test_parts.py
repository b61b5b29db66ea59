"""Models in several files: llama.cpp and gguf-py read ours, and we read llama.cpp's."""

import ctypes
from pathlib import Path

import gguf
import llama_cpp
import numpy as np
import pytest
from tiny_model import write_model

from edgequant.blocks import Floats
from edgequant.device import open_device
from edgequant.gguf.parts import COUNT, NUMBER, TENSORS
from edgequant.gguf.reader import open_file
from edgequant.gguf.writer import open_output
from edgequant.runtime.model import open_model
from edgequant.stages.quantize import quantize

pytestmark = pytest.mark.oracle
LIMIT = 70_000
TOKENS = np.array([258, 5, 77, 130, 9, 9, 201], np.int32)


def logits_of(path: Path, device: str) -> Floats:
    with open_model(path, open_device(device)) as model:
        return model.program.run(TOKENS, 0, rows=len(TOKENS))


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    return write_model(tmp_path / "whole.gguf")


@pytest.fixture
def first(tmp_path: Path, whole: Path) -> Path:
    """The same model in parts."""
    with (
        open_file(whole) as file,
        open_output(
            tmp_path / "split.gguf", file.keys, list(file.tensors.values()), part_nbytes=LIMIT
        ) as output,
    ):
        for name, weight in file.weights().items():
            output.append(name, weight.data)
    assert len(output.paths) > 2
    return output.paths[0]


@pytest.mark.parametrize("device", ["llama:1", "cpu"])
def test_a_model_in_parts_computes_the_same(whole: Path, first: Path, device: str) -> None:
    np.testing.assert_array_equal(logits_of(first, device), logits_of(whole, device))


def test_gguf_py_reads_every_part(whole: Path, first: Path) -> None:
    with open_file(whole) as file:
        weights = file.weights()
    readers = [gguf.GGUFReader(path) for path in open_file(first).paths]
    names = []
    for number, reader in enumerate(readers):
        said = {key: reader.fields[key] for key in (NUMBER, COUNT, TENSORS)}
        assert [int(field.contents()) for field in said.values()] == [number, len(readers), 21]
        assert [field.types[0].name for field in said.values()] == ["UINT16", "UINT16", "INT32"]
        for tensor in reader.tensors:
            assert tensor.data.tobytes() == weights[tensor.name].data.tobytes()
            names.append(tensor.name)
    assert names == list(weights)


def test_we_read_llama_cpps_parts(tmp_path: Path, first: Path) -> None:
    """llama.cpp's quantizer keeps the parts of its input."""
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0
    params.keep_split, params.nthread = True, 1
    target = tmp_path / "theirs"
    assert not llama_cpp.llama_model_quantize(bytes(first), bytes(target), ctypes.byref(params))
    quantize(first, tmp_path / "ours.gguf", type="Q8_0", threads=1)
    paths = sorted(tmp_path.glob("theirs-*.gguf"))
    with open_file(paths[0]) as theirs, open_file(tmp_path / "ours.gguf") as ours:
        assert theirs.paths == tuple(paths)
        assert len(paths) == len(open_file(first).paths)
        assert theirs.keys == ours.keys
        assert set(theirs.tensors.values()) == set(ours.tensors.values())
    quantize(paths[0], tmp_path / "copy.gguf", type="Q8_0")
    with open_file(paths[0]) as theirs, open_file(tmp_path / "copy.gguf") as copy:
        for name, weight in theirs.weights().items():
            assert copy.weights()[name].data.tobytes() == weight.data.tobytes()


def test_llama_cpp_runs_what_quantize_split(tmp_path: Path, first: Path) -> None:
    report = quantize(first, tmp_path / "q.gguf", type="Q8_0", part_nbytes=40_000)
    assert len(report.files) > 2
    quantize(first, tmp_path / "one.gguf", type="Q8_0")
    split, one = Path(report.files[0]), tmp_path / "one.gguf"
    np.testing.assert_array_equal(logits_of(split, "llama:1"), logits_of(one, "llama:1"))
