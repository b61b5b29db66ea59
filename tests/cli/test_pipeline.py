"""The whole pipeline as a script would drive it: each command reads what the one before wrote.

The JSON keys here are those that were promised to scripts.
"""

from pathlib import Path
from typing import Any

import pytest
import typed
from bench.make_checkpoint import Shape, write_checkpoint

TEXT = "The old house stood at the end of the road, and nobody had opened its door for 20 years.\n"
SHAPE = Shape(layers=2, embed=256, heads=4, heads_kv=2, ffn=512, vocab=260)
CONTEXT = 32


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What every command printed as JSON, in the order of the README."""
    folder = tmp_path_factory.mktemp("pipe line 東京")
    text, checkpoint = folder / "text.txt", folder / "checkpoint"
    text.write_text(TEXT * 4)
    write_checkpoint(checkpoint, SHAPE, seed=3)
    f16, matrix, q4 = (folder / name for name in ("f16.gguf", "imatrix.gguf", "q4.gguf"))
    scored = ("-f", text, "--ctx", CONTEXT, "--chunks", 3, "--device", "cpu")
    return {
        "convert": typed.read_json("convert", checkpoint, "-o", f16),
        "imatrix": typed.read_json("imatrix", f16, "-o", matrix, *scored),
        "quantize": typed.read_json(
            "quantize", f16, "-o", q4, "--type", "Q4_K_M", "--imatrix", matrix
        ),
        "run": typed.read_json("run", q4, "-p", "The old", "-n", 5, "--temp", 0, "--device", "cpu"),
        "perplexity": typed.read_json("perplexity", q4, *scored),
        "compare": typed.read_json("compare", f16, q4, *scored),
        "bench": typed.read_json("bench", q4, "-p", 4, "-n", 2, "-r", 1, "--device", "cpu"),
        "inspect": typed.read_json("inspect", q4),
        "inspect imatrix": typed.read_json("inspect", matrix),
    }


def test_convert_counts_what_it_wrote(reports: dict[str, Any]) -> None:
    report = reports["convert"]
    assert report["tensors"] == len(list(SHAPE.tensors()))
    assert Path(report["output"]).stat().st_size == report["bytes"]


def test_imatrix_measured_every_layer(reports: dict[str, Any]) -> None:
    report = reports["imatrix"]
    assert len(report["entries"]) == 7 * SHAPE.layers
    assert {entry["tokens"] for entry in report["entries"]} == {3 * CONTEXT}
    assert reports["inspect imatrix"]["coverage"]["chunks"] == report["chunks"] == 3


def test_quantize_used_the_matrix(reports: dict[str, Any]) -> None:
    report = reports["quantize"]
    assert {"tensors", "bits_per_weight", "bytes", "seconds"} <= set(report)
    for tensor in report["tensors"]:
        assert {"name", "type", "bytes", "rmse", "weighted_rmse"} <= set(tensor)
    rounded = [tensor for tensor in report["tensors"] if tensor["type"] == "Q4_K"]
    assert len(rounded) > 7
    assert all(0 < tensor["weighted_rmse"] < 0.01 for tensor in rounded if "blk" in tensor["name"])
    assert 4.5 < report["bits_per_weight"] < 6.6
    assert reports["inspect"]["tensor_bytes"] == report["bytes"]
    assert reports["inspect"]["bits_per_weight"] == pytest.approx(report["bits_per_weight"])
    assert reports["inspect"]["keys"]["quantize.imatrix.chunks_count"] == 3


def test_run_wrote_text(reports: dict[str, Any]) -> None:
    report = reports["run"]
    assert report["prompt_tokens"] == len("The old") + 1  # bytes, and BOS
    assert report["tokens"] == 5
    assert report["stopped"] == "length"


def test_perplexity_and_compare_agree(reports: dict[str, Any]) -> None:
    score, comparison = reports["perplexity"], reports["compare"]
    assert {"perplexity", "error", "tokens", "seconds"} <= set(score)
    assert score["tokens"] == comparison["tokens"] == 3 * (CONTEXT - 1 - CONTEXT // 2)
    (candidate,) = comparison["candidates"]
    assert {"name", "kl", "kl_error", "perplexity", "perplexity_ratio", "same_top"} <= set(
        candidate
    )
    assert candidate["name"] == "q4.gguf"
    assert candidate["perplexity"] == pytest.approx(score["perplexity"], rel=1e-6)
    base = comparison["reference"]["perplexity"]
    assert candidate["perplexity_ratio"] == pytest.approx(score["perplexity"] / base, rel=1e-6)
    assert 0 < candidate["kl"] < 0.05


def test_bench_is_a_list_in_llama_benchs_words(reports: dict[str, Any]) -> None:
    for test in reports["bench"]:
        assert {"n_prompt", "n_gen", "n_depth", "avg_ts", "stddev_ts"} <= set(test)
    assert [(test["n_prompt"], test["n_gen"]) for test in reports["bench"]] == [(4, 0), (0, 2)]
