"""`edgequant tune` as it is typed."""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import typed
from tiny_model import SIZES, write_model

from edgequant.gguf.reader import open_file
from edgequant.stages.quantize import quantize
from edgequant.stages.school import Course
from edgequant.stages.tune import tune

WIDE = replace(SIZES, layers=1, embed=256, heads=4, heads_kv=2, head_dim=64, ffn=256)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tune")
    write_model(folder / "full.gguf", sizes=WIDE)
    quantize(folder / "full.gguf", folder / "q2.gguf", type="Q2_K")
    (folder / "a.txt").write_text("The hello of the low halo, he said; " * 6)
    return folder


@pytest.fixture
def words(folder: Path) -> list[object]:
    full = folder / "full.gguf"
    options = ["--reference", full, "-f", folder / "a.txt", "--ctx", 16, "--chunks", 4]
    return ["tune", folder / "q2.gguf", *options]


@pytest.mark.slow
def test_json(words: list[object], tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    report = typed.read_json(*words, "-o", out, "--passes", 3, "--batch", 2, "--reach", 0.05)
    assert set(report) == {
        "output", "tuned", "changed", "datasets", "chunks", "held_back", "chunk_size", "steps",
        "kl_before", "kl_after", "seconds",
    }  # fmt: skip
    assert (report["output"], report["datasets"]) == (str(out), ["a.txt"])
    assert (report["chunks"], report["held_back"], report["steps"]) == (3, 1, 5)
    assert report["kl_after"] < report["kl_before"]


@pytest.mark.slow
def test_the_line(words: list[object], tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    result = typed.invoke(*words, "-o", out)
    assert result.exit_code == 0, result.stderr
    assert re.fullmatch(
        re.escape(str(out))
        + r": KL \d\.\d{5} -> \d\.\d{5} on 1 chunk held back; 11 tensors tuned, "
        r"\d+\.\d% of their weights changed\n",
        result.stdout,
    )
    assert "1 step a layer over 3 chunks of 16 tokens; a.txt" in result.stderr
    assert typed.exits_with(*words, "-o", out, "-q") == 1  # it is there
    assert typed.invoke(*words, "-o", out, "-q", "--force", "--seed", 3).output == ""


@pytest.mark.slow
def test_quantize_and_tune(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = partial(tune, context=16, course=Course(passes=3, batch=1, reach=0.2))
    monkeypatch.setattr("edgequant.stages.quantize_tuned.tune", quick)
    out, text = tmp_path / "out.gguf", folder / "a.txt"
    words = ["quantize", folder / "full.gguf", "-o", out, "--target-bpw", 3.5,
             "--target-formats", "Q2_K,Q3_K,Q4_K", "--tune", "--tune-text", text]  # fmt: skip
    report = typed.read_json(*words)
    assert report["files"] == [str(out)] == [report["output"]]
    assert report["bits_per_weight"] <= 3.5
    assert report["tuning"]["kl_after"] < report["tuning"]["kl_before"]
    assert report["seconds"] > report["tuning"]["seconds"]
    assert "before tuning" in report["notes"][-1]
    assert list(tmp_path.iterdir()) == [out]
    with open_file(out) as file:
        types = {info.name: info.type.name for info in file.tensors.values()}
    assert types == {tensor["name"]: tensor["type"] for tensor in report["tensors"]}
    result = typed.invoke(*words, "--force")
    assert f"{out}: mix of at most 3.5 bits per weight" in result.stdout
    assert " chunk held back; 11 tensors tuned, " in result.stdout


def test_what_tuning_does_not_go_with(folder: Path, tmp_path: Path) -> None:
    words = ["quantize", folder / "full.gguf", "-o", tmp_path / "out.gguf", "--type", "Q2_K"]
    assert "--tune-text needs --tune." in typed.invoke(*words, "--tune-text", "a.txt").stderr
    for option in (["--dry-run"], ["--resume"], ["--split-max-size", "1M"]):
        result = typed.invoke(*words, "--tune", *option)
        assert result.exit_code == 2
        assert "--tune goes with none of --dry-run, --resume, --split-max-size." in result.stderr
    assert typed.exits_with(*words, "--tune", "--tune-text", tmp_path / "no.txt") == 1
    assert not list(tmp_path.iterdir())
