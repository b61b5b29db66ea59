"""imatrix: what is summed, how texts are taken, how a run is interrupted and taken up again."""

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_model import BOS, write_model

from edgequant.device import open_device
from edgequant.device.protocol import Observer, Sums
from edgequant.errors import EdgequantError, FileError, ImatrixError, TextError
from edgequant.model.imatrix_file import read_importance, write_importance
from edgequant.model.importance import ImportanceMatrix
from edgequant.runtime.model import open_model
from edgequant.shipped import shipped
from edgequant.stages import imatrix
from edgequant.stages.imatrix import collect
from edgequant.stages.tally import Tally

CTX = 16
TEXT = "The hello of the low halo, he said; " * 6
LINEAR = {f"blk.{i}.{part}.weight" for i in range(2) for part in (
    "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imatrix")
    write_model(folder / "model.gguf")
    (folder / "a.txt").write_text(TEXT)
    (folder / "b.txt").write_text(TEXT.upper()[7:])
    return folder


def run(folder: Path, output: Path, *texts: str, **options: object) -> ImportanceMatrix:
    chosen = [folder / text for text in texts or ("a.txt",)]
    collect(folder / "model.gguf", output, texts=chosen, context=CTX, device="cpu", **options)  # type: ignore[arg-type]
    return read_importance(output)


def assert_equal(one: ImportanceMatrix, other: ImportanceMatrix) -> None:
    assert replace(one, entries={}) == replace(other, entries={})
    assert list(one.entries) == list(other.entries)
    for name, entry in one.entries.items():
        np.testing.assert_array_equal(entry.counts, other.entries[name].counts)
        np.testing.assert_allclose(entry.in_sum2, other.entries[name].in_sum2, rtol=1e-6)


def test_sums_are_over_all_tokens_of_chunks_that_start_with_bos(
    folder: Path, tmp_path: Path
) -> None:
    matrix = run(folder, tmp_path / "i.gguf", chunks=3)
    assert set(matrix.entries) == LINEAR
    assert (matrix.chunk_count, matrix.chunk_size) == (3, CTX)
    assert matrix.datasets == ("a.txt",)
    with open_model(folder / "model.gguf", open_device("cpu"), context=CTX) as model:
        ids = [BOS, *model.tokenizer.encode(TEXT, add_special=False)]
        assert isinstance(model.program, Observer)
        # the first layer's input is the normed embedding, whatever the chunk: reckon it plainly
        embedding = model.file.weights()["token_embd.weight"].data.view(np.float16)
        norm = model.file.weights()["blk.0.attn_norm.weight"].data.view(np.float32)[0]
    fed = [BOS if i % CTX == 0 else token for i, token in enumerate(ids[: 3 * CTX])]
    x = embedding[fed].astype(np.float64)
    x = x / np.sqrt(np.mean(x**2, axis=1, keepdims=True) + 1e-5) * norm
    entry = matrix.entries["blk.0.attn_q.weight"]
    np.testing.assert_allclose(entry.in_sum2[0], np.sum(x**2, axis=0), rtol=1e-4)
    np.testing.assert_array_equal(entry.counts, [3 * CTX])
    for part in ("attn_k", "attn_v"):
        other = matrix.entries[f"blk.0.{part}.weight"]
        np.testing.assert_array_equal(other.in_sum2, entry.in_sum2)


def test_the_output_layer_only_on_request(folder: Path, tmp_path: Path) -> None:
    matrix = run(folder, tmp_path / "i.gguf", chunks=1, process_output=True)
    assert set(matrix.entries) == LINEAR | {"output.weight"}
    assert matrix.entries["output.weight"].counts[0] == CTX


def test_texts_take_turns(folder: Path, tmp_path: Path) -> None:
    a = run(folder, tmp_path / "a.gguf", "a.txt", chunks=1)
    b = run(folder, tmp_path / "b.gguf", "b.txt", chunks=1)
    both = run(folder, tmp_path / "ab.gguf", "a.txt", "b.txt", chunks=2)
    assert both.datasets == ("a.txt", "b.txt")
    for name, entry in both.entries.items():
        total = a.entries[name].in_sum2 + b.entries[name].in_sum2
        np.testing.assert_allclose(entry.in_sum2, total, rtol=1e-5)


def test_a_resumed_run_ends_as_an_uninterrupted_one(folder: Path, tmp_path: Path) -> None:
    whole = run(folder, tmp_path / "whole.gguf", chunks=5)
    out = tmp_path / "parts.gguf"
    run(folder, out, chunks=2)
    assert_equal(run(folder, out, chunks=5, resume=True), whole)
    report = collect(folder / "model.gguf", out, texts=[folder / "a.txt"], context=CTX,
                     device="cpu", chunks=7, resume=True)  # fmt: skip
    assert (report.chunks, report.resumed_from, report.tokens) == (7, 5, 2 * CTX)


class Interrupting:
    """A progress that interrupts, as Ctrl-C would, at an advance."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.said: list[str] = []

    def begin(self, label: str, total: int, unit: str) -> None: ...
    def end(self) -> None: ...
    def say(self, text: str) -> None:
        self.said.append(text)

    def advance(self, amount: int, note: str = "") -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def test_an_interrupt_keeps_what_was_done(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imatrix, "SAVE_EVERY", 2)
    out = tmp_path / "i.gguf"
    progress = Interrupting(3)
    with pytest.raises(KeyboardInterrupt):
        run(folder, out, chunks=5, progress=progress)
    assert read_importance(out).chunk_count == 3
    assert progress.said == [
        f"{out}: holds 3 of 5 chunks; the same command with --resume goes on from there."
    ]
    whole = run(folder, tmp_path / "whole.gguf", chunks=5)
    assert_equal(run(folder, out, chunks=5, resume=True), whole)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["i.gguf", "whole.gguf"]


def test_an_interrupt_before_the_first_chunk_leaves_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> dict[str, Sums]:
        raise KeyboardInterrupt

    monkeypatch.setattr(imatrix, "_observe", interrupt)
    progress = Interrupting(0)
    with pytest.raises(KeyboardInterrupt):
        run(folder, tmp_path / "i.gguf", progress=progress)
    assert not progress.said
    assert not list(tmp_path.iterdir())


def test_partial_results_are_saved_on_the_way(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imatrix, "SAVE_EVERY", 2)
    counts = []
    written = imatrix.write_importance

    def spy(path: Path, matrix: ImportanceMatrix, **options: object) -> None:
        counts.append(matrix.chunk_count)
        written(path, matrix, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(imatrix, "write_importance", spy)
    run(folder, tmp_path / "i.gguf", chunks=5)
    assert counts == [2, 4, 5]


def test_the_report(folder: Path, tmp_path: Path) -> None:
    report = collect(folder / "model.gguf", tmp_path / "i.gguf", texts=[folder / "a.txt"],
                     context=CTX, chunks=2, device="auto")  # fmt: skip
    assert report.activations == "float32"
    assert "NumPy" in report.device  # auto passes over engines that cannot observe
    assert {entry.name for entry in report.entries} == LINEAR
    assert all(entry.tokens == 2 * CTX and entry.zero_share == 0 for entry in report.entries)
    assert report.tokens_per_second == pytest.approx(report.tokens / report.seconds)


def test_the_texts_that_are_shipped(folder: Path, tmp_path: Path) -> None:
    report = collect(folder / "model.gguf", tmp_path / "i.gguf", context=CTX, chunks=7,
                     device="cpu")  # fmt: skip
    names = sorted(path.name for path in shipped("calibration").glob("*.txt"))
    assert report.datasets == tuple(names)


def test_refusals(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "i.gguf"
    with pytest.raises(FileError, match="No such file"):
        run(folder, out, resume=True)
    run(folder, out, chunks=2)
    with pytest.raises(FileError, match="exists"):
        run(folder, out, chunks=2)
    with pytest.raises(ImatrixError, match="holds 2 chunks, and no more than 2 are to be had"):
        run(folder, out, chunks=2, resume=True)
    with pytest.raises(ImatrixError, match=r"is of a.txt, not of a.txt, b.txt"):
        run(folder, out, "a.txt", "b.txt", chunks=4, resume=True)
    with pytest.raises(ImatrixError, match=r"has chunks of 16 tokens, not of 8\."):
        collect(folder / "model.gguf", out, texts=[folder / "a.txt"], context=8, resume=True)
    short = tmp_path / "short.txt"
    short.write_text("he")
    with pytest.raises(TextError, match=r"short.txt: has 2 tokens"):
        collect(folder / "model.gguf", tmp_path / "o.gguf", texts=[short], context=CTX)
    with pytest.raises(EdgequantError):
        run(folder, folder / "model.gguf", force=True)
    with pytest.raises(EdgequantError):
        run(folder, folder / "a.txt", force=True)
    assert (folder / "a.txt").read_text() == TEXT


def test_resuming_another_models_file(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "i.gguf"
    matrix = run(folder, out, chunks=2)
    entries = {name.replace("blk.1", "blk.2"): entry for name, entry in matrix.entries.items()}
    write_importance(out, replace(matrix, entries=entries), force=True)
    with pytest.raises(ImatrixError, match=r"'blk\.2\.attn_k\.weight' is not a tensor"):
        run(folder, out, chunks=3, resume=True)


def test_a_legacy_file_cannot_be_resumed(folder: Path, tmp_path: Path) -> None:
    """It does not say how many tokens a chunk had."""
    out = tmp_path / "i.dat"
    out.write_bytes(struct.pack("<ii1siif", 1, 1, b"a", 1, 1, 1.0))
    with pytest.raises(ImatrixError, match=r"has chunks of unknown size, not of 16\.") as caught:
        run(folder, out, resume=True)
    assert "start a new file" in caught.value.hint


def test_an_activation_that_is_no_number_is_named(tmp_path: Path, folder: Path) -> None:
    model = write_model(tmp_path / "model.gguf", damage="blk.1.ffn_norm.weight")
    with pytest.raises(
        ImatrixError, match=r"the input of 'blk\.1\.ffn_gate\.weight' is not finite in chunk 1"
    ):
        collect(model, tmp_path / "i.gguf", texts=[folder / "a.txt"], context=CTX, device="cpu")
    assert not (tmp_path / "i.gguf").exists()


def test_a_tally_adds_and_keeps_the_old_one() -> None:
    one = Tally().plus({"a": Sums(np.array([1, 2], np.float32), 4)}, "m")
    two = one.plus({"a": Sums(np.array([1, 0], np.float32), 4)}, "m")
    np.testing.assert_array_equal(one.entries["a"][0], [[1, 2]])
    np.testing.assert_array_equal(two.entries["a"][0], [[2, 2]])
    matrix = two.matrix(("t",), 4)
    np.testing.assert_array_equal(matrix.entries["a"].counts, [8])
    assert matrix.chunk_count == 2
    again = Tally.of(matrix)
    assert again.chunks == 2
    np.testing.assert_array_equal(again.entries["a"][0], two.entries["a"][0])
