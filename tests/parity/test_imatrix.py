"""Importance matrices are llama-imatrix's, in both its forms, and llama.cpp takes what we make."""

from pathlib import Path

import numpy as np
import pytest
from llama_quantize import llama_quantize
from toys import toy_importance, write_toy, write_toy_importance

from edgequant.blocks import Floats, Weight
from edgequant.formats import dequantize, find
from edgequant.gguf.reader import open_file
from edgequant.model.imatrix_file import read_importance
from edgequant.model.importance import ImportanceMatrix
from edgequant.model.recipes import RECIPES
from edgequant.stages.convert import convert
from edgequant.stages.imatrix import collect
from edgequant.stages.quantize import quantize

MODELS = ("books-6m", "books-54m")


@pytest.mark.shared
@pytest.mark.parametrize("model", MODELS)
def test_both_forms_read_equal(shared: Path, model: str) -> None:
    gguf = read_importance(shared / "oracle" / f"{model}.imatrix.gguf")
    legacy = read_importance(shared / "oracle" / f"{model}.imatrix.dat")
    assert list(gguf.entries) == sorted(legacy.entries)
    assert (gguf.datasets, gguf.chunk_count) == (legacy.datasets, legacy.chunk_count)
    for name in gguf.entries:
        ours, theirs = gguf.mean(name), legacy.mean(name)
        assert ours is not None
        assert theirs is not None
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_sums_are_llama_imatrixs(shared: Path, tmp_path: Path, model: str) -> None:
    """Within 3e-3 a column: llama.cpp rounds the activations of an F16 file to float16."""
    convert(str(shared / "models" / model), tmp_path / "f16.gguf")
    text = shared / "data" / "books-calibration.txt"
    collect(tmp_path / "f16.gguf", tmp_path / "i.gguf", texts=[text], chunks=40, device="cpu")
    ours = read_importance(tmp_path / "i.gguf")
    theirs = read_importance(shared / "oracle" / f"{model}.imatrix.gguf")
    assert list(ours.entries) == list(theirs.entries)
    assert (ours.datasets, ours.chunk_count, ours.chunk_size) == (theirs.datasets, 40, 512)
    for name, entry in theirs.entries.items():
        np.testing.assert_array_equal(ours.entries[name].counts, entry.counts)
        np.testing.assert_allclose(ours.entries[name].in_sum2, entry.in_sum2, rtol=3e-3)


@pytest.mark.shared
def test_the_form_is_theirs(shared: Path, tmp_path: Path, rng: np.random.Generator) -> None:
    write_toy_importance(tmp_path / "i.gguf", rng)
    with (
        open_file(tmp_path / "i.gguf") as ours,
        open_file(shared / "oracle" / "books-6m.imatrix.gguf") as theirs,
    ):
        assert [(k, e.type, e.item) for k, e in ours.keys.items()] == [
            (k, e.type, e.item) for k, e in theirs.keys.items()
        ]
        assert (ours.version, ours.alignment) == (theirs.version, theirs.alignment)
        names = list(theirs.tensors)
        assert list(ours.tensors) == [n for n in names if n in ours.tensors]
        for name, info in ours.tensors.items():
            assert info.type == theirs.tensors[name].type
            assert len(info.shape) == len(theirs.tensors[name].shape)


@pytest.mark.oracle
def test_gguf_py_reads_ours(tmp_path: Path, rng: np.random.Generator) -> None:
    gguf = pytest.importorskip("gguf")
    write_toy_importance(tmp_path / "i.gguf", np.random.default_rng(5), experts=4)
    matrix = toy_importance(np.random.default_rng(5), experts=4)
    reader = gguf.GGUFReader(tmp_path / "i.gguf")
    assert reader.fields["general.type"].contents() == "imatrix"
    assert reader.fields["imatrix.datasets"].contents() == ["text.txt"]
    found = {tensor.name: tensor.data for tensor in reader.tensors}
    assert len(found) == 2 * len(matrix.entries)
    for name, entry in matrix.entries.items():
        sums = found[f"{name}.in_sum2"]
        np.testing.assert_array_equal(sums.reshape(entry.in_sum2.shape), entry.in_sum2)
        np.testing.assert_array_equal(found[f"{name}.counts"].reshape(-1), entry.counts)


def lost(weight: Weight, exact: Floats, matrix: ImportanceMatrix) -> float:
    """The share of the weighed energy that a format lost, float64."""
    decoded = dequantize(find(weight.type.name), weight.data).astype(np.float64)
    mean = matrix.mean(weight.name)
    q = np.ones((1, 1, 1)) if mean is None else mean[:, None, :].astype(np.float64)
    x = exact.reshape(len(q), -1, weight.info.columns).astype(np.float64)
    return float(np.sum(q * (decoded.reshape(x.shape) - x) ** 2) / np.sum(q * x**2))


@pytest.mark.oracle
@pytest.mark.parametrize("experts", [0, 4])
@pytest.mark.parametrize("recipe", ["Q4_K_M", "Q4_0", "Q8_0"])
def test_llama_cpp_quantizes_with_ours_to_the_same_types_and_no_less_error(
    tmp_path: Path, rng: np.random.Generator, recipe: str, experts: int
) -> None:
    """Importance that went to the wrong expert or column would lose several times as much."""
    sizes = {"layers": 8, "embed": 256, "ffn": 256, "experts": experts}
    source = write_toy(tmp_path / "toy.gguf", rng, **sizes)
    path = write_toy_importance(tmp_path / "i.gguf", rng, **sizes)
    matrix = read_importance(path)
    ours, theirs = tmp_path / "ours.gguf", tmp_path / "theirs.gguf"
    quantize(source, ours, type=recipe, imatrix=path)
    llama_quantize(source, theirs, RECIPES[recipe].file_type, matrix)
    with open_file(source) as f16, open_file(ours) as a, open_file(theirs) as b:
        assert list(a.tensors.values()) == list(b.tensors.values())
        keys = {k: v for k, v in a.keys.items() if not k.startswith("quantize.imatrix.")}
        assert keys == dict(b.keys)
        for name, weight in f16.weights().items():
            exact = dequantize(find(weight.type.name), weight.data)
            mine, other = (lost(file.weights()[name], exact, matrix) for file in (a, b))
            assert mine <= 1.02 * other, name


@pytest.mark.shared
def test_keys_are_those_of_llama_quantize(shared: Path, tmp_path: Path, books_6m: Path) -> None:
    convert(str(books_6m), tmp_path / "f16.gguf")
    imatrix = shared / "oracle" / "books-6m.imatrix.gguf"
    quantize(tmp_path / "f16.gguf", tmp_path / "q.gguf", type="Q4_K_M", imatrix=imatrix)
    with (
        open_file(tmp_path / "q.gguf") as ours,
        open_file(shared / "oracle" / "books-6m-q4_k_m.gguf") as theirs,
    ):
        assert [(n, i.type.name) for n, i in ours.tensors.items()] == [
            (n, i.type.name) for n, i in theirs.tensors.items()
        ]
        for key in theirs.keys:
            if key.startswith("quantize.") or key in (
                "general.file_type", "general.quantization_version",
            ):  # fmt: skip
                assert ours.keys[key] == theirs.keys[key]


@pytest.mark.oracle
def test_llama_cpp_loads_and_runs_what_we_write(tmp_path: Path, books_6m: Path) -> None:
    from edgequant.device import open_device
    from edgequant.runtime.model import open_model

    pytest.importorskip("llama_cpp")
    convert(str(books_6m), tmp_path / "f16.gguf")
    quantize(tmp_path / "f16.gguf", tmp_path / "q.gguf", type="Q4_K_M")
    logits = {}
    for device in ("cpu", "llama"):
        with open_model(tmp_path / "q.gguf", open_device(device), context=64) as model:
            tokens = model.tokenizer.encode("It was the best of times")
            logits[device] = model.program.run(tokens, 0, rows=1)[0]
    # its CPU rounds activations to 8 bits: a few parts in a hundred
    difference = logits["cpu"] - logits["llama"]
    assert np.linalg.norm(difference) < 0.1 * np.linalg.norm(logits["cpu"])
