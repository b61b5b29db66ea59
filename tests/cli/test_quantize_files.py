"""`edgequant quantize` with --split-max-size, --resume and --report, as they are typed."""

import json
import sys
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result
from toys import write_toy

from edgequant.cli import cli, main
from edgequant.cli.options import parse_size
from edgequant.gguf.reader import open_file


@pytest.fixture
def toy(tmp_path: Path, rng: np.random.Generator) -> Path:
    return write_toy(tmp_path / "toy.gguf", rng, layers=1)


def invoke(*words: object) -> Result:
    return CliRunner().invoke(cli, ["quantize", *map(str, words)], catch_exceptions=False)


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("1", 1), ("2G", 2 * 10**9), ("2GB", 2 * 10**9), ("2g", 2 * 10**9), ("500M", 5 * 10**8),
        ("1.5GiB", 3 << 29), ("0.3k", 300), ("4.5G", 4_500_000_000), ("1T", 10**12),
    ],
)  # fmt: skip
def test_sizes(text: str, nbytes: int) -> None:
    assert parse_size(text) == nbytes


@pytest.mark.parametrize("text", ["", "G", "-1G", "0", "0.0001K", "2 G", "2Gi", "1e9", "nan", "2B"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a size such as 500M"):
        parse_size(text)


def test_parts(toy: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    result = invoke(toy, "-o", out, "--type", "Q8_0", "--split-max-size", "0.3M")
    assert result.exit_code == 0, result.output
    paths = sorted(tmp_path.glob("out-*.gguf"))
    assert len(paths) > 1
    assert f"{paths[0]} and {len(paths) - 1} more: Q8_0" in result.stdout
    assert all(path.stat().st_size <= 300_000 for path in paths)
    with open_file(paths[0]) as file:
        assert len(file.tensors) == 11
    result = invoke(toy, "-o", out, "--type", "Q8_0", "--split-max-size", "0.3M", "--force",
                    "--json")  # fmt: skip
    assert json.loads(result.stdout)["files"] == [str(path) for path in paths]
    result = invoke(toy, "-o", out, "--type", "Q8_0", "--split-max-size", "0.3M", "--dry-run")
    assert f"{len(paths)} files would be Q8_0" in result.stdout
    result = invoke(toy, "-o", out, "--type", "Q8_0", "--split-max-size", "big")
    assert result.exit_code == 2
    assert "'big' is not a size such as 500M, 2G or 1.5GiB." in result.stderr


def test_resume_leaves_the_output_alone(toy: Path, tmp_path: Path) -> None:
    invoke(toy, "-o", tmp_path / "plain.gguf", "--type", "Q4_0")
    result = invoke(toy, "-o", tmp_path / "out.gguf", "--type", "Q4_0", "--resume")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out.gguf").read_bytes() == (tmp_path / "plain.gguf").read_bytes()
    assert names(tmp_path) == {"toy.gguf", "plain.gguf", "out.gguf"}


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_report_is_a_page_or_json(toy: Path, tmp_path: Path, dry: tuple[str, ...]) -> None:
    words = (toy, "-o", tmp_path / "out.gguf", "--type", "Q4_K_M", "--force", *dry)
    result = invoke(*words, "--report", tmp_path / "r.HTML")
    assert result.exit_code == 0, result.output
    page = (tmp_path / "r.HTML").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "blk.0.ffn_down.weight" in page
    result = invoke(*words, "--report", tmp_path / "r.json", "--json")
    written, shown = json.loads((tmp_path / "r.json").read_text()), json.loads(result.stdout)
    del written["seconds"], shown["seconds"]
    assert shown.pop("output") == str(tmp_path / "out.gguf")
    assert written == shown
    worst = next(t for t in written["tensors"] if t["name"] == "blk.0.ffn_down.weight")["worst"]
    assert worst is None if dry else {"row", "block", "rmse", "share"} == set(worst)
    assert [layer["layer"] for layer in written["layers"]] == [0, None]


def exits_with(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["edgequant", "quantize", *map(str, words)])
    with pytest.raises(SystemExit) as caught:
        main()
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_reports_that_cannot_be(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All is known before the work: nothing is written."""
    words = (toy, "-o", tmp_path / "out.json", "--type", "Q4_K_M", "--report")
    for name in ("report", "report.png", ".html"):
        assert exits_with(monkeypatch, *words, tmp_path / name) == 2
        assert "does not end in .html or .json" in capsys.readouterr().err
    assert exits_with(monkeypatch, *words, tmp_path / "." / "out.json") == 1
    assert "is to be the report, and another file of this run too" in capsys.readouterr().err
    (tmp_path / "old.html").write_text("precious")
    assert exits_with(monkeypatch, *words, tmp_path / "old.html") == 1
    assert "old.html: exists." in capsys.readouterr().err
    assert exits_with(monkeypatch, *words, tmp_path / "none" / "r.html") == 1
    assert "does not exist" in capsys.readouterr().err
    assert names(tmp_path) == {"toy.gguf", "old.html"}
    assert (tmp_path / "old.html").read_text() == "precious"
