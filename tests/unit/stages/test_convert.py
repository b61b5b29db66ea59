"""Conversion of a tiny checkpoint: what is written, what is decided, and what is refused."""

import os
import tracemalloc
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from shards import BF16, write_raw
from tiny_checkpoint import EMBED, OUTPUT, TINY, UP, make_tensors, write_tiny

from edgequant.blocks import Weight
from edgequant.errors import CheckpointError, EdgequantError, FileError, UnsupportedError
from edgequant.gguf.reader import open_file
from edgequant.source.shard import DTYPES
from edgequant.stages.convert import FILE_TYPES, convert

F16, F32 = np.dtype(np.float16), np.dtype(np.float32)


def values(weight: Weight) -> NDArray[np.float32]:
    """Return a float tensor of a model file as float32, in its shape."""
    plain: NDArray[np.float32] = weight.data.view(DTYPES[weight.type.name]).astype(np.float32)
    return plain.reshape(weight.shape)


def read(path: Path) -> tuple[dict[str, object], dict[str, tuple[str, NDArray[np.float32]]]]:
    """Return a file's plain keys, and each tensor's type and values."""
    with open_file(path) as file:
        weights = file.weights()
        tensors = {name: (w.type.name, values(w).copy()) for name, w in weights.items()}
        return dict(file.values()), tensors


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
@pytest.mark.parametrize("outtype", ["f16", "bf16", "f32"])
def test_every_float_type_to_every_other(
    tmp_path: Path, rng: np.random.Generator, dtype: np.dtype, outtype: str
) -> None:
    tensors = make_tensors(rng, dtype)
    source = write_tiny(tmp_path / "tiny", tensors)
    report = convert(str(source), tmp_path / "out.gguf", outtype=outtype)
    keys, written = read(tmp_path / "out.gguf")
    kept, kind = DTYPES[outtype.upper()], outtype.upper()
    for name, hf in (
        ("token_embd.weight", EMBED),
        ("output.weight", OUTPUT),
        ("blk.1.ffn_up.weight", UP),
        ("blk.0.attn_v.weight", "model.layers.0.self_attn.v_proj.weight"),
    ):
        assert written[name][0] == kind
        np.testing.assert_array_equal(written[name][1], tensors[hf].astype(kept).astype(F32))
    norm = "model.layers.1.post_attention_layernorm.weight"
    assert written["blk.1.ffn_norm.weight"][0] == "F32"
    np.testing.assert_array_equal(written["blk.1.ffn_norm.weight"][1], tensors[norm].astype(F32))
    assert keys["general.file_type"] == FILE_TYPES[kind]
    assert (report.outtype, report.notes) == (kind, ())


def test_the_report_and_the_keys(tmp_path: Path, rng: np.random.Generator) -> None:
    tensors = make_tensors(rng)
    source = write_tiny(tmp_path / "tiny-llama", tensors)
    report = convert(str(source), tmp_path / "out.gguf")
    keys, written = read(tmp_path / "out.gguf")
    assert report.output == tmp_path / "out.gguf"
    assert report.architecture == "llama"
    assert report.tensors == len(written) == len(tensors)
    assert report.parameters == sum(tensor.size for tensor in tensors.values())
    assert report.bytes == (tmp_path / "out.gguf").stat().st_size
    assert keys["general.architecture"] == "llama"
    assert keys["general.type"] == "model"
    assert keys["general.name"] == "tiny-llama"
    assert keys["general.quantization_version"] == 2
    assert keys["llama.block_count"] == TINY.layers
    assert keys["llama.vocab_size"] == TINY.vocab
    tokens = keys["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    assert len(tokens) == TINY.vocab  # 258 and two paddings
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["out.gguf"]


@pytest.mark.parametrize(("dtype", "expected"), [(F16, "F16"), (BF16, "BF16"), (F32, "BF16")])
def test_auto_is_the_checkpoints_own_type(
    tmp_path: Path, rng: np.random.Generator, dtype: np.dtype, expected: str
) -> None:
    source = write_tiny(tmp_path / "tiny", make_tensors(rng, dtype))
    assert convert(str(source), tmp_path / "out.gguf", outtype="auto").outtype == expected


def test_chunks_do_not_change_the_file(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_tiny(tmp_path / "tiny", make_tensors(rng))
    convert(str(source), tmp_path / "whole.gguf")
    monkeypatch.setattr("edgequant.stages.float_rows.CHUNK_WEIGHTS", 96)
    convert(str(source), tmp_path / "chunks.gguf")
    assert (tmp_path / "chunks.gguf").read_bytes() == (tmp_path / "whole.gguf").read_bytes()


@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_weights_beyond_f16_are_never_infinite(
    tmp_path: Path, rng: np.random.Generator, dtype: np.dtype
) -> None:
    tensors = make_tensors(rng, dtype)
    tensors[UP][3, 5] = -70000
    source = write_tiny(tmp_path / "tiny", tensors)
    report = convert(str(source), tmp_path / "out.gguf")
    _, written = read(tmp_path / "out.gguf")
    kind, up = written["blk.1.ffn_up.weight"]
    assert kind == "BF16"
    np.testing.assert_array_equal(up, tensors[UP].astype(BF16).astype(F32))
    assert report.notes == ("'blk.1.ffn_up.weight' is kept in BF16: beyond F16's range",)
    assert {kind for kind, _ in written.values()} == {"F16", "F32", "BF16"}


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", [UP, "model.norm.weight"])
@pytest.mark.parametrize("outtype", ["f16", "bf16"])
def test_weights_that_are_not_finite_are_refused(
    tmp_path: Path, rng: np.random.Generator, poison: float, name: str, outtype: str
) -> None:
    tensors = make_tensors(rng)
    tensors[name].reshape(-1)[9] = poison
    source = write_tiny(tmp_path / "tiny", tensors)
    with pytest.raises(CheckpointError, match=f"'{name}': the weight at") as caught:
        convert(str(source), tmp_path / "out.gguf", outtype=outtype)
    index = [0, 9] if tensors[name].ndim == 2 else [9]
    assert f"the weight at {index} is {poison}" in caught.value.what
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]


def test_a_tied_copy_is_left_out(tmp_path: Path, rng: np.random.Generator) -> None:
    tensors = make_tensors(rng)
    tensors[OUTPUT] = tensors[EMBED].copy()
    source = write_tiny(tmp_path / "tiny", tensors, tie_word_embeddings=True)
    report = convert(str(source), tmp_path / "out.gguf")
    _, written = read(tmp_path / "out.gguf")
    assert "output.weight" not in written
    assert report.notes == (f"'{OUTPUT}' is a copy of '{EMBED}' and left out",)


@pytest.mark.parametrize("change", ["value", "type"])
def test_a_tied_output_that_differs_is_kept(
    tmp_path: Path, rng: np.random.Generator, change: str
) -> None:
    tensors = make_tensors(rng)
    tensors[OUTPUT] = tensors[EMBED].astype(F32) if change == "type" else tensors[EMBED].copy()
    tensors[OUTPUT][-1, -1] += 1
    source = write_tiny(tmp_path / "tiny", tensors, tie_word_embeddings=True)
    report = convert(str(source), tmp_path / "out.gguf", outtype="f32")
    _, written = read(tmp_path / "out.gguf")
    np.testing.assert_array_equal(written["output.weight"][1], tensors[OUTPUT].astype(F32))
    assert f"'{OUTPUT}' is kept" in report.notes[0]


@pytest.mark.parametrize("stated", [True, None])
def test_an_output_that_is_absent_reads_the_embedding(
    tmp_path: Path, rng: np.random.Generator, stated: bool | None
) -> None:
    tensors = make_tensors(rng)
    del tensors[OUTPUT]
    source = write_tiny(tmp_path / "tiny", tensors, tie_word_embeddings=stated)
    report = convert(str(source), tmp_path / "out.gguf")
    _, written = read(tmp_path / "out.gguf")
    assert "output.weight" not in written
    noted = () if stated else (f"'{OUTPUT}' is absent: the output reads the embedding",)
    assert report.notes == noted


def test_an_output_that_must_be_there_is_missed(tmp_path: Path, rng: np.random.Generator) -> None:
    tensors = make_tensors(rng)
    del tensors[OUTPUT]
    source = write_tiny(tmp_path / "tiny", tensors, tie_word_embeddings=False)
    with pytest.raises(CheckpointError, match=r"'lm_head\.weight' is missing, of 21 tensors"):
        convert(str(source), tmp_path / "out.gguf")


def test_missing_tensors_are_counted_not_listed(tmp_path: Path, rng: np.random.Generator) -> None:
    tensors = {n: t for n, t in make_tensors(rng).items() if "layers.1" not in n}
    source = write_tiny(tmp_path / "tiny", tensors)
    with pytest.raises(CheckpointError, match=r"layers\.1\..* and 6 more are missing") as caught:
        convert(str(source), tmp_path / "out.gguf")
    assert caught.value.what.count("layers.1") == 3


def test_left_over_tensors_are_named(tmp_path: Path, rng: np.random.Generator) -> None:
    tensors = make_tensors(rng)
    bias = "model.layers.0.self_attn.q_proj.bias"
    tensors[bias] = np.zeros(TINY.embed, BF16)
    source = write_tiny(tmp_path / "tiny", tensors)
    with pytest.raises(CheckpointError, match=f"'{bias}' is left over; llama has no such tensor"):
        convert(str(source), tmp_path / "out.gguf")


def test_a_misshapen_tensor_is_named(tmp_path: Path, rng: np.random.Generator) -> None:
    tensors = make_tensors(rng)
    tensors[EMBED] = tensors[EMBED][:-1]
    source = write_tiny(tmp_path / "tiny", tensors)
    message = r"'model\.embed_tokens\.weight' has shape \(259, 32\), but .* asks for \(260, 32\)"
    with pytest.raises(CheckpointError, match=message):
        convert(str(source), tmp_path / "out.gguf")


def test_the_tokenizer_is_checked_before_weights(tmp_path: Path, rng: np.random.Generator) -> None:
    tensors = make_tensors(rng)
    tensors[UP][0, 0] = np.nan
    source = write_tiny(tmp_path / "tiny", tensors)
    (source / "tokenizer.json").write_text("{}")
    with pytest.raises(EdgequantError, match="tokenizer") as caught:
        convert(str(source), tmp_path / "out.gguf")
    assert "nan" not in caught.value.what


def test_an_unknown_model_is_refused(tmp_path: Path, rng: np.random.Generator) -> None:
    source = write_tiny(tmp_path / "tiny", make_tensors(rng), architectures=["MambaForCausalLM"])
    with pytest.raises(UnsupportedError, match="MambaForCausalLM") as caught:
        convert(str(source), tmp_path / "out.gguf")
    assert "LlamaForCausalLM" in caught.value.hint


def test_output_is_not_overwritten_and_never_an_input(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    source = write_tiny(tmp_path / "tiny", make_tensors(rng))
    output = tmp_path / "out.gguf"
    output.write_text("precious")
    with pytest.raises(FileError, match="exists"):
        convert(str(source), output)
    assert output.read_text() == "precious"
    convert(str(source), output, force=True)
    shard = source / "model.safetensors"
    before = shard.read_bytes()
    (tmp_path / "link.gguf").symlink_to(shard)
    (tmp_path / "hard.gguf").hardlink_to(shard)
    links = tmp_path / "link.gguf", tmp_path / "hard.gguf"
    for path in (shard, *links, source / "config.json", source / "tokenizer.json"):
        with pytest.raises(FileError, match="is the input"):
            convert(str(source), path, force=True)
    assert shard.read_bytes() == before


def test_an_interrupt_leaves_nothing(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_tiny(tmp_path / "tiny", make_tensors(rng))
    calls = 0

    def encode(rows: NDArray[np.generic], name: str) -> NDArray[np.uint8]:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise KeyboardInterrupt
        return rows.astype(DTYPES[name]).reshape(len(rows), -1).view(np.uint8)

    monkeypatch.setattr("edgequant.stages.convert.encode", encode)
    with pytest.raises(KeyboardInterrupt):
        convert(str(source), tmp_path / "out.gguf")
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]


def sparse_checkpoint(directory: Path, vocab: int) -> Path:
    """A checkpoint whose embedding and output are a hole on the disk, read as zeros."""
    shape = replace(TINY, embed=512, vocab=vocab)
    write_tiny(directory, {}, hidden_size=shape.embed, vocab_size=vocab)
    header, end = {}, 0
    for name, size in shape.tensors():
        start, end = end, end + 2 * prod(size)
        header[name] = {"dtype": "BF16", "shape": size, "data_offsets": [start, end]}
    shard = write_raw(directory / "model.safetensors", header)
    os.truncate(shard, shard.stat().st_size + end)
    return directory


def test_memory_does_not_grow_with_the_model(tmp_path: Path) -> None:
    peaks = []
    for vocab in (4_096, 16_384):  # 8 MB and 34 MB
        source = sparse_checkpoint(tmp_path / f"{vocab}", vocab)
        tracemalloc.start()
        convert(str(source), tmp_path / f"{vocab}.gguf")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    tokens = 12_288 * 500  # what the longer list of padding tokens may take, each a string
    assert peaks[1] < peaks[0] + tokens < 20e6


class Counted:
    """A progress that adds up."""

    def __init__(self) -> None:
        self.tasks: list[list[int]] = []

    def begin(self, label: str, total: int, unit: str) -> None:
        self.tasks.append([total, 0])

    def advance(self, amount: int, note: str = "") -> None:
        self.tasks[-1][1] += amount

    def end(self) -> None:
        pass

    def say(self, text: str) -> None:
        raise AssertionError(text)


def test_progress_adds_up(tmp_path: Path, rng: np.random.Generator) -> None:
    source = write_tiny(tmp_path / "tiny", make_tensors(rng))
    progress = Counted()
    convert(str(source), tmp_path / "out.gguf", progress=progress)
    assert len(progress.tasks) == 2
    for total, done in progress.tasks:
        assert total == done > 0


def test_the_bundled_checkpoint(books_6m: Path, tmp_path: Path) -> None:
    report = convert(str(books_6m), tmp_path / "books.gguf")
    assert (report.tensors, report.parameters) == (56, 5_770_496)
