"""quantize: what is written, reported and refused. Types are the business of test_recipes."""

from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
from bench.make_checkpoint import REAL, write_sparse_model
from toys import (
    toy_arrays,
    toy_importance,
    toy_keys,
    write_model,
    write_toy,
    write_toy_importance,
)

from edgequant.blocks import BLOCK_TYPES, TensorInfo
from edgequant.errors import EdgequantError, FileError, GGUFError, ImatrixError, UnsupportedError
from edgequant.formats import dequantize, find
from edgequant.formats import quantize as encode
from edgequant.gguf.reader import open_file
from edgequant.gguf.spec import KeyValue, ValueType
from edgequant.gguf.writer import open_output
from edgequant.model.imatrix_file import write_importance
from edgequant.model.importance import Entry, ImportanceMatrix
from edgequant.model.overrides import read_overrides
from edgequant.model.recipes import RECIPES
from edgequant.stages import recode
from edgequant.stages.quantize import quantize
from edgequant.stages.quantize_plan import Wish


@pytest.fixture
def toy(tmp_path: Path, rng: np.random.Generator) -> Path:
    return write_toy(tmp_path / "toy.gguf", rng)


def decoded(path: Path, name: str) -> np.ndarray:
    with open_file(path) as file:
        weight = file.weights()[name]
        return dequantize(find(weight.type.name), weight.data)


@pytest.mark.parametrize("recipe", [name for name in RECIPES if not RECIPES[name].blind])
def test_the_file_is_what_the_formats_make_of_the_weights(
    tmp_path: Path, toy: Path, recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recode, "CHUNK_WEIGHTS", 20000)  # so that tensors are cut
    out = tmp_path / "out.gguf"
    report = quantize(toy, out, type=recipe, threads=2)
    with open_file(toy) as source, open_file(out) as file:
        assert list(file.tensors) == [t.name for t in report.tensors]
        for t in report.tensors:
            before, after = source.weights()[t.name], file.weights()[t.name]
            assert (after.type.name, after.info.nbytes) == (t.type, t.bytes)
            if before.type == after.type:
                np.testing.assert_array_equal(before.data, after.data)
                assert t.rmse == 0
                continue
            x = dequantize(find(before.type.name), before.data)
            np.testing.assert_array_equal(encode(find(t.type), x), after.data)
            exact = x.astype(np.float64) - dequantize(find(t.type), after.data)
            assert t.rmse == pytest.approx(np.sqrt(np.mean(exact**2)), rel=1e-5)
            assert t.error == pytest.approx(np.sum(exact**2) / np.sum(x.astype(float) ** 2), 1e-5)
            assert t.weighted_rmse is None
    assert report.bytes == sum(t.bytes for t in report.tensors)
    assert report.bits_per_weight == 8 * report.bytes / report.weights
    assert not report.notes


def test_threads_change_nothing(tmp_path: Path, toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recode, "CHUNK_WEIGHTS", 20000)
    for threads in (1, 5):
        quantize(toy, tmp_path / f"{threads}.gguf", type="Q4_K_M", threads=threads)
    assert (tmp_path / "1.gguf").read_bytes() == (tmp_path / "5.gguf").read_bytes()


@pytest.mark.parametrize("experts", [0, 3])
def test_importance_is_each_matrixs_own(
    tmp_path: Path, rng: np.random.Generator, experts: int
) -> None:
    source = write_toy(tmp_path / "toy.gguf", rng, experts=experts)
    imatrix = write_toy_importance(tmp_path / "i.gguf", rng, experts=experts)
    out = tmp_path / "out.gguf"
    report = quantize(source, out, type="Q4_K_M", imatrix=imatrix)
    suffix = "_exps" if experts else ""
    name = f"blk.0.ffn_gate{suffix}.weight"
    mean = toy_importance(np.random.default_rng(0), experts=experts)  # shapes only
    with open_file(imatrix) as file:
        sums = dequantize(find("F32"), file.weights()[f"{name}.in_sum2"].data)
    assert sums.shape == mean.entries[name].in_sum2.shape
    x = decoded(source, name).reshape(len(sums), -1, sums.shape[1])
    with open_file(out) as file:
        weight = file.weights()[name]
    expected = [encode(find(weight.type.name), m, s / 1024) for m, s in zip(x, sums, strict=True)]
    np.testing.assert_array_equal(weight.data, np.concatenate(expected))
    row = next(t for t in report.tensors if t.name == name)
    exact = (decoded(out, name).reshape(x.shape).astype(np.float64) - x) ** 2
    q = (sums.astype(np.float64) / 1024)[:, None, :]
    assert row.weighted_rmse == pytest.approx(
        np.sqrt(np.sum(q * exact) / (np.sum(q) * x.shape[1])), rel=1e-4
    )
    assert row.error == pytest.approx(np.sum(q * exact) / np.sum(q * x.astype(float) ** 2), 1e-4)
    assert report.without_importance == ()


def test_keys_are_copied_and_marked(tmp_path: Path, rng: np.random.Generator) -> None:
    keys = toy_keys() | {
        "tokenizer.ggml.tokens": ["a", "é", "\udcff"], "x.int8": KeyValue(ValueType.INT8, -3),
        "x.empty": KeyValue(ValueType.ARRAY, [], ValueType.FLOAT64), "general.alignment": 64,
    }  # fmt: skip
    source = write_model(tmp_path / "toy.gguf", toy_arrays(rng), keys)
    imatrix = write_toy_importance(tmp_path / "i.gguf", rng)
    quantize(source, tmp_path / "out.gguf", type="Q5_K_M", imatrix=imatrix)
    with open_file(source) as before, open_file(tmp_path / "out.gguf") as after:
        old, new = dict(before.keys), dict(after.keys)
        assert after.alignment == 64
    assert new.pop("general.quantization_version") == KeyValue(ValueType.UINT32, 2)
    assert new.pop("general.file_type") == KeyValue(ValueType.UINT32, 17)
    assert new.pop("quantize.imatrix.file") == KeyValue(ValueType.STRING, "i.gguf")
    assert new.pop("quantize.imatrix.dataset") == KeyValue(ValueType.STRING, "text.txt")
    assert new.pop("quantize.imatrix.entries_count") == KeyValue(ValueType.UINT32, 14)
    assert new.pop("quantize.imatrix.chunks_count") == KeyValue(ValueType.UINT32, 2)
    old.pop("general.file_type")
    assert new == old


def test_rows_that_do_not_divide_are_listed_and_strict_forbids_them(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    source = write_toy(tmp_path / "toy.gguf", rng, embed=288, kv=36)
    report = quantize(source, tmp_path / "out.gguf", type="Q4_K_M")
    query = next(t for t in report.tensors if t.name == "blk.0.attn_q.weight")
    assert (query.type, query.fallback_from) == ("Q5_0", "Q4_K")
    assert sum(t.fallback_from is not None for t in report.tensors) == 13
    (note,) = report.notes
    assert note.startswith("13 tensors (")
    assert "token_embd.weight (288 columns: Q8_0, not Q6_K)" in note
    assert note.count(" columns: ") == 13
    with pytest.raises(UnsupportedError, match="rows of 13 tensors are not whole blocks") as caught:
        quantize(source, tmp_path / "strict.gguf", type=Wish("Q4_K_M", strict=True))
    assert "blk.0.attn_q.weight (288 columns, Q4_K -> Q5_0)" in caught.value.what
    assert "and 5 more" in caught.value.what
    assert not (tmp_path / "strict.gguf").exists()


@pytest.mark.parametrize("shape", [(3, 2, 5, 14), (3, 2, 5, 64), (2, 3, 256), (7, 172)])
@pytest.mark.parametrize("recipe", ["Q4_K_M", "Q8_0", "Q4_0"])
def test_rows_that_fit_nothing_become_f16(
    tmp_path: Path, rng: np.random.Generator, shape: tuple[int, ...], recipe: str
) -> None:
    """llama.cpp's request 20159 (a 4-D tensor) and issue 2708 (rows that are not 32s)."""
    arrays = {"blk.0.conv.weight": rng.standard_normal(shape)}
    source = write_model(tmp_path / "x.gguf", arrays, {"general.architecture": "x"}, "F32")
    (tensor,) = quantize(source, tmp_path / "out.gguf", type=recipe).tensors
    assert (tensor.type == "F16") is (shape[-1] % 32 != 0)
    assert (tensor.fallback_from is None) is (
        shape[-1] % BLOCK_TYPES[RECIPES[recipe].default].weights == 0
    )
    values = decoded(tmp_path / "out.gguf", "blk.0.conv.weight")
    np.testing.assert_allclose(values.reshape(shape), arrays["blk.0.conv.weight"], atol=0.4)


def test_an_unknown_architecture(tmp_path: Path, rng: np.random.Generator) -> None:
    arrays = {"blk.0.novel_thing.weight": rng.standard_normal((4, 512)),
              "blk.0.novel_bias": rng.standard_normal(512)}  # fmt: skip
    source = write_model(tmp_path / "x.gguf", arrays, {"general.architecture": "novel"}, "BF16")
    report = quantize(source, tmp_path / "out.gguf", type="Q4_K_S")
    assert {t.name: t.type for t in report.tensors} == {
        "blk.0.novel_thing.weight": "Q4_K", "blk.0.novel_bias": "F32",
    }  # fmt: skip


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["blk.1.ffn_up.weight", "blk.1.ffn_norm.weight"])
def test_a_weight_that_is_no_number_is_named(
    tmp_path: Path, rng: np.random.Generator, bad: float, name: str
) -> None:
    arrays = toy_arrays(rng)
    arrays[name][..., 7] = bad if arrays[name].ndim == 1 else 0
    row = 0
    if arrays[name].ndim == 2:
        row = 300
        arrays[name][row, 7] = bad
    source = write_model(tmp_path / "toy.gguf", arrays, toy_keys(), "F32")
    out = tmp_path / "out.gguf"
    with pytest.raises(
        GGUFError, match=rf"toy.gguf: '{name}': the weight at row {row}, column 7 is {bad}\."
    ):
        quantize(source, out, type="Q4_K_M", threads=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["toy.gguf"]


@pytest.mark.parametrize("recipe", RECIPES)
def test_zeros_in_the_importance_never_make_nan(
    tmp_path: Path, rng: np.random.Generator, recipe: str
) -> None:
    """Zeros made NaN blocks: llama.cpp's issues 8661, 11764, 12439, 7311."""
    source = write_toy(tmp_path / "toy.gguf", rng, "F32", layers=1)
    matrix = toy_importance(rng, layers=1)
    for entry, zeros in zip(matrix.entries.values(), cycle((32, 256, 512)), strict=False):
        entry.in_sum2[:, :zeros] = 0
    write_importance(tmp_path / "i.gguf", matrix)
    out = tmp_path / "out.gguf"
    report = quantize(source, out, type=recipe, imatrix=tmp_path / "i.gguf")
    for t in report.tensors:
        values, before = decoded(out, t.name), decoded(source, t.name)
        assert np.isfinite(values).all()
        lost = np.sum((values - before) ** 2) / np.sum(before.astype(float) ** 2)
        bound = 0.02 if BLOCK_TYPES[t.type].bits_per_weight > 4 else 0.4
        assert lost < bound, t
        assert t.error is not None
        assert t.error < bound
    if RECIPES[recipe].mixes:
        assert any(n.startswith("Columns whose input was always zero") for n in report.notes)


def test_unseen_experts_and_missing_tensors_are_noted(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    """llama.cpp's issues 7816 and 6552: NaN, or a whole tensor without importance."""
    source = write_toy(tmp_path / "toy.gguf", rng, experts=4)
    matrix = toy_importance(rng, experts=4)
    entries = dict(matrix.entries)
    del entries["blk.0.attn_q.weight"]
    experts = entries["blk.1.ffn_up_exps.weight"]
    experts.in_sum2[2] = 0
    experts.counts[2] = 0
    write_importance(tmp_path / "i.gguf", ImportanceMatrix(entries, (), 1, 512))
    out = tmp_path / "out.gguf"
    report = quantize(source, out, type="Q4_K_M", imatrix=tmp_path / "i.gguf")
    assert report.without_importance == ("blk.0.attn_q.weight",)
    assert report.notes == (
        "1 tensors have no importance: blk.0.attn_q.weight.",
        "Experts that saw no token weigh all columns alike: blk.1.ffn_up_exps.weight (1 of 4).",
    )
    with open_file(source) as before, open_file(out) as after:
        assert "quantize.imatrix.dataset" not in after.keys
        x = dequantize(find("F16"), before.weights()["blk.1.ffn_up_exps.weight"].data[1024:1536])
        unseen = after.weights()["blk.1.ffn_up_exps.weight"].data[1024:1536]
    uniform = encode(find("Q4_K"), x, np.ones(256, np.float32))
    np.testing.assert_array_equal(unseen, uniform)


def test_an_importance_matrix_of_another_model(
    tmp_path: Path, rng: np.random.Generator, toy: Path
) -> None:
    imatrix = write_toy_importance(tmp_path / "i.gguf", rng, embed=320)
    with pytest.raises(ImatrixError, match=r"'blk\.0\.attn_k\.weight' has 320 columns, not 256"):
        quantize(toy, tmp_path / "out.gguf", type="Q4_K_M", imatrix=imatrix)
    imatrix = write_toy_importance(tmp_path / "j.gguf", rng, layers=3)
    with pytest.raises(
        ImatrixError, match=r"'blk\.2\.attn_k\.weight' is not a tensor of the model"
    ):
        quantize(toy, tmp_path / "out.gguf", type="Q4_K_M", imatrix=imatrix)


def test_quantizing_twice_is_refused_but_copies_are_not(tmp_path: Path, toy: Path) -> None:
    first, again = tmp_path / "q.gguf", tmp_path / "again.gguf"
    quantize(toy, first, type="Q4_K_M")
    quantize(first, again, type="Q4_K_M")
    assert again.read_bytes() == first.read_bytes()
    with pytest.raises(UnsupportedError, match="is Q6_K and would become Q8_0") as caught:
        quantize(first, tmp_path / "out.gguf", type="Q8_0")
    assert "start from the F16" in caught.value.hint


def test_weights_beyond_f16_are_refused(tmp_path: Path, rng: np.random.Generator) -> None:
    """llama.cpp's issue 13722: infinities."""
    arrays = toy_arrays(rng)
    arrays["blk.0.attn_q.weight"][3, 1:3] = -1e9, 70000
    source = write_model(tmp_path / "toy.gguf", arrays, toy_keys(), "BF16")
    out = tmp_path / "out.gguf"
    with pytest.raises(
        GGUFError,
        match=r"'blk.0.attn_q.weight': the weight at row 3, column 1 is -9.*, beyond F16's 65,504",
    ):
        quantize(source, out, type="F16")
    assert not out.exists()
    kept = read_overrides(patterns=["blk.0.attn_q=bf16"])
    quantize(source, out, type=Wish("F16", overrides=kept))
    assert decoded(out, "blk.0.attn_q.weight")[3, 1] == pytest.approx(-1e9, rel=0.01)


def make_link(source: Path, path: Path) -> None:
    path.hardlink_to(source)


def make_symlink(source: Path, path: Path) -> None:
    path.symlink_to(source)


@pytest.mark.parametrize("link", [make_link, make_symlink, None])
def test_the_output_is_never_the_input(
    tmp_path: Path, toy: Path, link: Callable[[Path, Path], None] | None
) -> None:
    """llama.cpp's issue 12753: quantizing a file onto itself destroyed it."""
    out = toy
    if link is not None:
        out = tmp_path / "link.gguf"
        link(toy, out)
    before = toy.read_bytes()
    with pytest.raises(FileError, match="is the input"):
        quantize(toy, out, type="Q4_K_M", force=True)
    assert toy.read_bytes() == before


def test_an_existing_output_needs_force(tmp_path: Path, toy: Path) -> None:
    out = tmp_path / "out.gguf"
    out.write_text("precious")
    with pytest.raises(FileError, match="exists"):
        quantize(toy, out, type="Q4_K_M")
    assert out.read_text() == "precious"
    quantize(toy, out, type="Q4_K_M", force=True)
    assert out.read_bytes()[:4] == b"GGUF"


def test_what_is_not_a_model(tmp_path: Path, rng: np.random.Generator) -> None:
    imatrix = write_toy_importance(tmp_path / "i.gguf", rng)
    with pytest.raises(UnsupportedError, match="an importance matrix, not a model file"):
        quantize(imatrix, tmp_path / "out.gguf", type="Q4_K_M")
    with pytest.raises(UnsupportedError, match="NOPE: not a recipe"):
        quantize(imatrix, tmp_path / "out.gguf", type="NOPE")


def test_integer_matrices_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    with open_output(path, {}, [TensorInfo("a.weight", BLOCK_TYPES["I32"], (4, 256))]) as output:
        output.append("a.weight", np.zeros((4, 1024), np.uint8))
    with pytest.raises(UnsupportedError, match=r"'a\.weight' is I32 and would become Q4_K"):
        quantize(path, tmp_path / "out.gguf", type="Q4_K_M")


class Interrupting:
    """A progress that interrupts, as Ctrl-C would, at its second advance."""

    def __init__(self) -> None:
        self.calls = 0

    def begin(self, label: str, total: int, unit: str) -> None: ...
    def end(self) -> None: ...
    def say(self, text: str) -> None: ...
    def advance(self, amount: int, note: str = "") -> None:
        self.calls += 1
        if self.calls == 2:
            raise KeyboardInterrupt


def test_an_interrupt_leaves_nothing(tmp_path: Path, toy: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        quantize(toy, tmp_path / "out.gguf", type="Q4_K_M", progress=Interrupting())
    assert [p.name for p in tmp_path.iterdir()] == ["toy.gguf"]


def test_a_dry_run_on_the_llama_3_1_8b_shape(tmp_path: Path) -> None:
    path = tmp_path / "8b.gguf"
    write_sparse_model(path, REAL["llama-3.1-8b"])
    report = quantize(path, None, type="Q4_K_M", dry_run=True)
    assert f"{report.bytes / 2**30:.2f}" == "4.58"
    assert f"{report.bits_per_weight:.2f}" == "4.89"
    assert report.weights == 8_030_261_312
    assert report.dry_run
    assert all(t.rmse is None for t in report.tensors)
    assert list(tmp_path.iterdir()) == [path]


def test_a_dry_run_writes_nothing_but_checks(
    tmp_path: Path, rng: np.random.Generator, toy: Path
) -> None:
    out = tmp_path / "out.gguf"
    report = quantize(toy, out, type="Q4_K_M", dry_run=True)
    assert report.bytes == quantize(toy, out, type="Q4_K_M").bytes
    quantize(toy, out, type="Q8_0", dry_run=True)  # nothing is overwritten, so no force is needed
    with pytest.raises(EdgequantError):
        quantize(toy, toy, type="Q8_0", dry_run=True)
    with pytest.raises(ValueError, match="an output is needed"):
        quantize(toy, None, type="Q8_0")


def test_entries_may_be_seen_by_nobody(tmp_path: Path, rng: np.random.Generator, toy: Path) -> None:
    entry = Entry(np.zeros((1, 256), np.float32), np.zeros(1, np.float32))
    matrix = ImportanceMatrix({"blk.0.attn_q.weight": entry}, (), 1, 512)
    write_importance(tmp_path / "i.gguf", matrix)
    out = tmp_path / "out.gguf"
    report = quantize(toy, out, type="Q4_K_M", imatrix=tmp_path / "i.gguf")
    assert len(report.without_importance) == 13
    assert np.isfinite(decoded(out, "blk.0.attn_q.weight")).all()
