"""`edgequant imatrix` as it is typed."""

import json
from pathlib import Path

import pytest
import typed
from click.testing import Result
from tiny_model import write_model

from edgequant.model.imatrix_file import read_importance
from edgequant.stages import imatrix

TEXT = "The hello of the low halo, he said; " * 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imatrix")
    write_model(folder / "model.gguf")
    (folder / "a.txt").write_text(TEXT)
    return folder


def words(folder: Path, output: Path, *more: object) -> list[object]:
    fixed = [folder / "model.gguf", "-o", output, "-f", folder / "a.txt", "--ctx", 16]
    return ["imatrix", *fixed, "--device", "cpu", *more]


def invoke(folder: Path, output: Path, *more: object) -> Result:
    return typed.invoke(*words(folder, output, *more))


def test_json(folder: Path, tmp_path: Path) -> None:
    result = invoke(folder, tmp_path / "i.gguf", "--chunks", 2, "--json")
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["chunks"], report["chunk_size"], report["tokens"]) == (2, 16, 32)
    assert report["activations"] == "float32"
    assert len(report["entries"]) == 14
    assert read_importance(tmp_path / "i.gguf").chunk_count == 2


def test_the_table_and_resume(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "i.gguf"
    result = invoke(folder, out, "--chunks", 2)
    assert "14 entries from 2 chunks of 16 tokens; a.txt" in result.stdout
    assert "each saw 32 tokens, and no column was always zero" in result.stdout
    assert "activations float32" in result.stderr
    result = invoke(folder, out, "--chunks", 3, "--resume")
    assert "3 chunks of 16 tokens, 2 of them from before" in result.stdout
    result = invoke(folder, out, "--chunks", 3, "-q", "--process-output", "--force")
    assert result.output == ""
    assert "output.weight" in read_importance(out).entries


def test_what_the_text_reached_least_is_shown(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    observe = imatrix._observe

    def dead(*arguments: object) -> object:
        seen = observe(*arguments)  # type: ignore[arg-type]
        seen["blk.1.ffn_down.weight"].in_sum2[:24] = 0
        return seen

    monkeypatch.setattr(imatrix, "_observe", dead)
    result = invoke(folder, tmp_path / "i.gguf", "--chunks", 2)
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["blk.1.ffn_down.weight", "32", "25.0%"] in rows


def test_ctrl_c_keeps_chunks_and_says_so(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "i.gguf"
    observe, calls = imatrix._observe, []

    def interrupted(*arguments: object) -> object:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return observe(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(imatrix, "_observe", interrupted)
    assert typed.exits_with(*words(folder, out, "--chunks", 5)) == 130
    err = " ".join(capsys.readouterr().err.split())
    assert "holds 2 of 5 chunks" in err
    assert "--resume" in err
    assert read_importance(out).chunk_count == 2
    assert invoke(folder, out, "--chunks", 5, "--resume").exit_code == 0
    assert read_importance(out).chunk_count == 5


def test_exit_codes(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "i.gguf"
    assert typed.exits_with(*words(folder, out, "--chunks", 0)) == 2
    capsys.readouterr()
    assert typed.exits_with(*words(folder, out, "--device", "llama")) == 1
    assert "Hint: use --device cpu" in capsys.readouterr().err
    assert typed.exits_with(*words(folder, out, "--resume")) == 1
    assert "No such file" in capsys.readouterr().err
    assert not out.exists()
