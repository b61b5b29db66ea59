"""`edgequant bench`: llama-bench's names, a grid of tests, and what does not fit."""

from pathlib import Path
from typing import Any

import pytest
import typed
from click.testing import Result
from tiny_model import SIZES, write_model

from edgequant import __version__
from edgequant.errors import UnsupportedError
from edgequant.stages.bench import measure_speed

# Of llama-bench's JSON at llama.cpp 0c1e57098, those that a test of ours has a value for.
FIELDS = {
    "build_commit", "cpu_info", "backends", "model_filename", "model_type", "model_size",
    "model_n_params", "n_batch", "n_ubatch", "n_threads", "type_k", "type_v", "n_prompt",
    "n_gen", "n_depth", "test_time", "avg_ns", "stddev_ns", "avg_ts", "stddev_ts",
    "samples_ns", "samples_ts",
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("bench") / "m.gguf")


def bench(*arguments: object) -> Result:
    return typed.invoke("bench", *arguments, "--device", "cpu")


def read_json(*arguments: object) -> list[dict[str, Any]]:
    report = typed.read_json("bench", *arguments, "--device", "cpu")
    assert isinstance(report, list)
    return report


def test_fields_and_figures(model: Path) -> None:
    prefill, decode = read_json(model, "-p", 16, "-n", 4, "-r", 3)
    for test in (prefill, decode):
        assert set(test) >= FIELDS
        assert len(test["samples_ns"]) == len(test["samples_ts"]) == 3
        tokens = test["n_prompt"] + test["n_gen"]
        for nanoseconds, rate in zip(test["samples_ns"], test["samples_ts"], strict=True):
            assert rate == pytest.approx(tokens * 1e9 / nanoseconds)
        assert test["avg_ts"] == pytest.approx(sum(test["samples_ts"]) / 3)
        assert test["stddev_ts"] > 0
        assert test["build_commit"] == __version__
    assert (prefill["n_prompt"], prefill["n_gen"]) == (16, 0)
    assert (decode["n_prompt"], decode["n_gen"]) == (0, 4)
    vocab, embed = SIZES.vocab, SIZES.embed
    matrices = 2 * vocab * embed + 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 96 * 64)
    assert prefill["model_n_params"] == matrices + 5 * embed
    assert prefill["model_size"] == 2 * matrices + 4 * 5 * embed
    assert prefill["model_type"] == "llama F16"


def test_lists_make_a_grid(model: Path) -> None:
    tests = read_json(model, "-p", "8,4", "-n", 2, "-d", "0,16", "-r", 1)
    found = [(test["n_prompt"], test["n_gen"], test["n_depth"]) for test in tests]
    assert found == [(8, 0, 0), (4, 0, 0), (0, 2, 0), (8, 0, 16), (4, 0, 16), (0, 2, 16)]
    assert all(test["stddev_ts"] == 0 for test in tests)


def test_zero_is_no_test(model: Path) -> None:
    assert [test["n_gen"] for test in read_json(model, "-p", 0, "-n", 2, "-r", 1)] == [2]
    assert measure_speed(model, prompts=(0,), gens=(0,), device="cpu") == ()
    nothing = bench(model, "-p", 0, "-n", 0)
    assert nothing.exit_code == 2
    assert "Nothing to measure" in nothing.stderr


def test_the_table_names_tests_as_llama_bench_does(model: Path) -> None:
    result = bench(model, "-p", 8, "-n", 2, "-d", 16, "-r", 2)
    assert "| pp8 @ d16 |" in result.stdout
    assert "| tg2 @ d16 |" in result.stdout
    assert "±" in result.stdout
    assert bench(model, "-p", 8, "-n", 0, "-r", 1, "-q").output == ""


def test_a_test_beyond_the_models_context_is_refused(model: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"of 76 tokens.*trained for 64.*\n.*ask for 64"):
        bench(model, "-p", 16, "-n", 0, "-d", 60)


@pytest.mark.parametrize("value", ["x", "1,", "-1", "1.5", "99999999", "²", "1" * 5000])
def test_what_is_no_number_is_a_usage_error(model: Path, value: str) -> None:
    result = bench(model, "-p", value)
    assert result.exit_code == 2
    assert "is not whole numbers between commas" in result.stderr
