import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typed

from edgequant.blocks import BLOCK_TYPES, TensorInfo
from edgequant.gguf.spec import KeyValue, ValueType
from edgequant.gguf.writer import open_output

LONG = "blk.0.a_name_as_long_as_the_format_allows_and_not_a_letter_less"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    keys = {
        "general.architecture": "llama",
        "general.name": "[bold]Toy[/bold] \x1b[31m",
        "llama.block_count": 2,
        "llama.embedding_length": 256,
        "llama.attention.head_count": KeyValue(ValueType.STRING, "many"),
        "llama.rope.freq_base": 0.1,
        "tokenizer.ggml.tokens": [f"t{number}" for number in range(4096)],
        "tokenizer.ggml.scores": [0.1, 1e30],
        "tokenizer.ggml.odd": ["\udcff", "b"],
        "tokenizer.chat_template": "{% for m in messages %}\n" * 9,
        "not.a.number": float("nan"),
    }
    infos = [
        TensorInfo("token_embd.weight", BLOCK_TYPES["Q6_K"], (4, 256)),
        TensorInfo(LONG, BLOCK_TYPES["Q4_K"], (2, 3, 256)),
        TensorInfo("output_norm.weight", BLOCK_TYPES["F32"], (256,)),
    ]
    path = tmp_path / "toy.gguf"
    with open_output(path, keys, infos) as output:
        for info in infos:
            output.append(info.name, np.zeros(info.nbytes, np.uint8))
    return path


@pytest.fixture
def imatrix(tmp_path: Path) -> Path:
    entries = {
        "blk.0.ffn_up.weight": ([4.0, 0.0, 1.0, 2.0], [512.0]),
        "blk.0.ffn_up_exps.weight": ([1.0, 2.0, 0.0, 0.0, 5.0, 6.0], [100.0, 0.0, 300.0]),
    }
    infos, arrays = [], []
    for name, (sums, counts) in entries.items():
        squares = np.array(sums, np.float32).reshape(len(counts), -1)
        seen = np.array(counts, np.float32)[:, None]
        for suffix, values in (("in_sum2", squares), ("counts", seen)):
            infos.append(TensorInfo(f"{name}.{suffix}", BLOCK_TYPES["F32"], values.shape))
            arrays.append(values)
    infos.append(TensorInfo("alone.in_sum2", BLOCK_TYPES["F32"], (2,)))
    arrays.append(np.zeros((1, 2), np.float32))
    keys = {
        "general.type": "imatrix",
        "imatrix.datasets": ["calm.txt", "code.txt"],
        "imatrix.chunk_count": 3,
        "imatrix.chunk_size": 512,
    }
    path = tmp_path / "imatrix.gguf"
    with open_output(path, keys, infos) as output:
        for info, values in zip(infos, arrays, strict=True):
            output.append(info.name, values.view(np.uint8))
    return path


def run(*arguments: object) -> str:
    result = typed.invoke("inspect", *arguments)
    assert result.exit_code == 0
    return result.stdout


def test_a_model_is_listed(model: Path) -> None:
    lines = run(model).splitlines()
    assert lines[0] == f"{model}: llama, 2 layers, width 256, vocabulary 4,096"
    assert lines[1] == f"{model.stat().st_size:,} bytes, GGUF version 3, alignment 32"
    rows = [line.split() for line in lines]
    assert ["tensor", "type", "shape", "bytes"] in rows
    assert [LONG, "Q4_K", "(2,", "3,", "256)", "864"] in rows
    assert ["output_norm.weight", "F32", "(256,)", "1,024"] in rows
    assert ["Q6_K", "1", "1,024", "840", "6.562"] in rows
    assert ["all", "3", "2,816", "2,728", "7.750"] in rows
    assert ["llama.rope.freq_base", "0.1"] in rows
    text = "\n".join(lines)
    assert "4,096 x STRING: ['t0', 't1', 't2', 't3', 't4', …]" in text
    assert "2 x FLOAT32: [0.1, 1e+30]" in text
    assert "… (216 characters)" in text


def test_a_file_cannot_command_the_terminal(model: Path) -> None:
    text = run(model)
    assert "[bold]Toy[/bold] \\x1b[31m" in text
    assert "\x1b" not in text


def test_json_says_the_same(model: Path) -> None:
    report = json.loads(run(model, "--json"))
    assert report["path"] == str(model)
    assert report["bytes"] == model.stat().st_size
    assert (report["version"], report["alignment"]) == (3, 32)
    assert (report["parameters"], report["tensor_bytes"]) == (2816, 2728)
    assert report["bits_per_weight"] == 7.75
    assert report["coverage"] is None
    assert report["tensors"][1] == {
        "name": LONG, "type": "Q4_K", "shape": [2, 3, 256], "bytes": 864
    }  # fmt: skip
    assert report["types"][0] == {"type": "F32", "tensors": 1, "parameters": 256, "bytes": 1024}
    keys = report["keys"]
    assert keys["tokenizer.ggml.tokens"] == {
        "type": "STRING", "length": 4096, "first": ["t0", "t1", "t2", "t3", "t4"]
    }  # fmt: skip
    assert keys["tokenizer.ggml.odd"]["first"] == ["\\udcff", "b"]
    assert keys["tokenizer.chat_template"] == "{% for m in messages %}\n" * 9
    assert keys["not.a.number"] is None


def test_an_importance_matrix_shows_its_coverage(imatrix: Path) -> None:
    text = run(imatrix)
    assert text.startswith(f"{imatrix}: importance matrix\n")
    assert "2 entries from 3 chunks of 512 tokens of calm.txt, code.txt" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["blk.0.ffn_up.weight", "4", "1", "0", "1", "512"] in rows
    assert ["blk.0.ffn_up_exps.weight", "2", "3", "1", "2", "300"] in rows
    assert json.loads(run(imatrix, "--json"))["coverage"] == {
        "chunks": 3,
        "chunk_size": 512,
        "datasets": ["calm.txt", "code.txt"],
        "entries": [
            {"name": "blk.0.ffn_up.weight", "columns": 4, "matrices": 1, "unseen": 0, "zeros": 1,
             "tokens": 512},
            {"name": "blk.0.ffn_up_exps.weight", "columns": 2, "matrices": 3, "unseen": 1,
             "zeros": 2, "tokens": 300},
        ],
    }  # fmt: skip


def test_parts_are_listed_as_one(tmp_path: Path) -> None:
    infos = [TensorInfo(f"t{i}", BLOCK_TYPES["F32"], (64,)) for i in range(3)]
    with open_output(tmp_path / "m.gguf", {"a.b": 1}, infos, part_nbytes=600) as output:
        for info in infos:
            output.append(info.name, np.zeros((1, 256), np.uint8))
    paths = [str(path) for path in output.paths]
    total = sum(path.stat().st_size for path in output.paths)
    text = run(paths[0])
    assert f"{total:,} bytes in 3 files, GGUF version 3" in text
    assert all(name in text for name in ("t0", "t1", "t2", "a.b"))
    assert "split." not in text
    report = json.loads(run(paths[0], "--json"))
    assert (report["files"], report["bytes"]) == (paths, total)


def test_a_file_of_keys_alone(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.gguf"
    with open_output(path, {"general.type": 5}, []):
        pass
    assert run(path).startswith(f"{path}: no architecture\n")
    assert json.loads(run(path, "--json"))["bits_per_weight"] is None


def test_quiet_prints_nothing(model: Path) -> None:
    assert run(model, "-q") == ""


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_a_pipe_gets_whole_names(model: Path, arguments: list[str]) -> None:
    command = [sys.executable, "-m", "edgequant", "inspect", model, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert LONG in done.stdout
    assert done.stderr == ""


def test_a_text_file_named_gguf(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "notes.gguf"
    path.write_text("remember the milk\n")
    assert typed.exits_with("inspect", path) == 1
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err == (
        f"Error: {path}: is not GGUF, but a text file.\n"
        "Hint: name the model file, which ends in .gguf as a rule.\n"
    )
