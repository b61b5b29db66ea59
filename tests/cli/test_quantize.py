"""`edgequant quantize` as it is typed."""

import json
from pathlib import Path

import numpy as np
import pytest
import typed
from bench.make_checkpoint import REAL, write_sparse_model
from click.testing import Result
from toys import write_toy, write_toy_importance

from edgequant.cli.plan_table import spans
from edgequant.model.recipes import RECIPES


@pytest.fixture
def toy(tmp_path: Path, rng: np.random.Generator) -> Path:
    return write_toy(tmp_path / "toy.gguf", rng, layers=1)


def invoke(*words: object) -> Result:
    return typed.invoke("quantize", *words)


def test_json_has_the_promised_keys(toy: Path, tmp_path: Path, rng: np.random.Generator) -> None:
    imatrix = write_toy_importance(tmp_path / "i.gguf", rng, layers=1)
    out = tmp_path / "out.gguf"
    result = invoke(toy, "-o", out, "--type", "Q4_K_M", "--imatrix", imatrix, "--threads", 2,
                    "--json")  # fmt: skip
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert {"tensors", "bits_per_weight", "bytes", "seconds"} <= set(report)
    names = [tensor["name"] for tensor in report["tensors"]]
    assert names[0] == "output_norm.weight"
    for tensor in report["tensors"]:
        assert {"name", "type", "bytes", "rmse", "weighted_rmse"} <= set(tensor)
    query = next(t for t in report["tensors"] if t["name"] == "blk.0.attn_q.weight")
    assert query["type"] == "Q4_K"
    assert 0 < query["rmse"] < 0.2
    assert 0 < query["weighted_rmse"] < 0.2
    assert report["bytes"] <= out.stat().st_size <= report["bytes"] + 4096


def test_the_table(toy: Path, tmp_path: Path) -> None:
    result = invoke(toy, "-o", tmp_path / "out.gguf", "--type", "q4_k_m")
    assert result.exit_code == 0
    assert "Q6_K" in result.stdout
    assert "most is lost in" in result.stdout
    assert "bits per weight" in result.stdout
    assert invoke(toy, "-o", tmp_path / "2.gguf", "--type", "Q8_0", "-q").output == ""
    lossless = invoke(toy, "-o", tmp_path / "3.gguf", "--type", "F16")
    assert "most is lost in" not in lossless.stdout


@pytest.mark.slow
def test_a_target_shows_its_plan(toy: Path, tmp_path: Path, rng: np.random.Generator) -> None:
    imatrix = write_toy_importance(tmp_path / "i.gguf", rng, layers=1)
    out = tmp_path / "out.gguf"
    result = invoke(toy, "-o", out, "--target-bpw", 4.8, "--imatrix", imatrix)
    assert result.exit_code == 0, result.stderr
    assert "formats, by layer" in result.stdout
    assert "ffn_down" in result.stdout
    assert "mix of at most 4.8 bits per weight" in result.stdout
    size = out.stat().st_size
    result = invoke(toy, "--target-size", f"{size / 1000:.3f}K", "--dry-run", "--imatrix", imatrix)
    assert result.exit_code == 0, result.stderr
    assert "formats, by layer" in result.stdout


def test_what_is_said_of_tensors(toy: Path, tmp_path: Path) -> None:
    words = ["--type", "Q4_K_M", "--dry-run", "--json"]
    result = invoke(toy, *words, "--pure", "--output-type", "q8_0",
                    "--tensor-type", "attn_[qk]=Q5_K", "--tensor-type", "attn_q=Q6_K")  # fmt: skip
    assert result.exit_code == 0, result.stderr
    types = {t["name"]: t["type"] for t in json.loads(result.stdout)["tensors"]}
    assert types["token_embd.weight"] == "Q8_0"  # the output, too
    assert types["blk.0.attn_q.weight"] == "Q5_K"
    assert types["blk.0.attn_v.weight"] == "Q4_K"
    result = invoke(toy, *words, "--keep-output", "--embedding-type", "Q4_0")
    types = {t["name"]: t["type"] for t in json.loads(result.stdout)["tensors"]}
    assert types["token_embd.weight"] == "F16"


@pytest.mark.parametrize("effort", ["fast", "default", "best"])
def test_effort(toy: Path, tmp_path: Path, effort: str) -> None:
    out = tmp_path / "out.gguf"
    result = invoke(toy, "-o", out, "--type", "Q4_K_S", "--effort", effort)
    assert result.exit_code == 0, result.stderr


def test_requantizing(toy: Path, tmp_path: Path) -> None:
    once, twice = tmp_path / "1.gguf", tmp_path / "2.gguf"
    invoke(toy, "-o", once, "--type", "Q8_0")
    result = invoke(once, "-o", twice, "--type", "Q4_K_M", "--allow-requantize")
    assert result.exit_code == 0, result.stderr
    assert "rounded a second time" in result.stdout


@pytest.mark.parametrize(("numbers", "text"), [
    ([], ""), ([3], "3"), ([0, 1, 2, 7], "0-2, 7"), ([0, 2, 3], "0, 2-3"),
])  # fmt: skip
def test_layers_in_short(numbers: list[int], text: str) -> None:
    assert spans(numbers) == text


def test_notes_are_shown(tmp_path: Path, rng: np.random.Generator) -> None:
    odd = write_toy(tmp_path / "odd.gguf", rng, embed=288, kv=36, layers=1)
    result = invoke(odd, "-o", tmp_path / "out.gguf", "--type", "Q4_K_M")
    assert "rows that are not whole blocks" in result.stdout.replace("\n", " ")


def test_a_dry_run_on_the_llama_3_1_8b_shape(tmp_path: Path) -> None:
    path = tmp_path / "8b.gguf"
    write_sparse_model(path, REAL["llama-3.1-8b"])
    result = invoke(path, "--type", "Q4_K_M", "--dry-run")
    assert result.exit_code == 0
    assert "4.58 GiB" in result.stdout
    assert "4.89 bits per weight" in result.stdout
    assert [p.name for p in tmp_path.iterdir()] == ["8b.gguf"]


def test_exit_codes(toy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.gguf"
    assert typed.exits_with("quantize", toy, "--type", "Q4_K_M") == 2
    assert "Missing option '-o'" in capsys.readouterr().err
    assert typed.exits_with("quantize", toy, "-o", out) == 2
    assert "--type" in capsys.readouterr().err
    assert typed.exits_with("quantize", toy, "-o", out, "--type", "Q4_K_M", "--threads", 0) == 2
    capsys.readouterr()
    assert typed.exits_with("quantize", toy, "-o", out, "--type", "Q4_K_X") == 1
    err = capsys.readouterr().err
    assert "Q4_K_X: not a recipe" in err
    assert all(name in err for name in RECIPES)
    assert typed.exits_with("quantize", tmp_path / "none.gguf", "-o", out, "--type", "Q4_K_M") == 1
    assert "no such file" in capsys.readouterr().err
    assert typed.exits_with("quantize", toy, "-o", toy, "--type", "Q4_K_M", "--force") == 1
    assert "is the input" in capsys.readouterr().err
    text = tmp_path / "text.gguf"
    text.write_text("not a model")
    assert typed.exits_with("quantize", text, "-o", out, "--type", "Q4_K_M") == 1
    assert "Hint:" in capsys.readouterr().err
    assert not out.exists()
