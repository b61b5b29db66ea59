"""`perplexity` and `compare` on tiny models: their numbers reckoned again, and their refusals."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typed
from click.testing import Result
from tiny_model import BOS, TOKENS, write_model

from edgequant.device import open_device
from edgequant.errors import TextError, UnsupportedError
from edgequant.runtime.model import open_model

CTX, CHUNKS = 16, 3
TEXT = "The hello of the low halo, he said; " * 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scoring")
    (folder / "t.txt").write_text(TEXT)
    write_model(folder / "f16.gguf")
    write_model(folder / "q8_0.gguf", fmt="Q8_0")
    write_model(folder / "other.gguf", seed=8)
    return folder


def invoke(name: str, *arguments: object) -> Result:
    return typed.invoke(name, *arguments, "--device", "cpu")


def read_json(name: str, *arguments: object) -> dict[str, Any]:
    report = typed.read_json(name, *arguments, "--device", "cpu")
    assert isinstance(report, dict)
    return report


def log_softmax_of(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Score the plain way: one token at a time, all positions, the protocol written out."""
    rows, targets = [], []
    with open_model(path, open_device("cpu"), context=CTX) as model:
        ids = [BOS, *model.tokenizer.encode(TEXT, add_special=False)]
        for start in range(0, CHUNKS * CTX, CTX):
            chunk = [BOS, *ids[start + 1 : start + CTX]]
            for position, token in enumerate(chunk):
                logits = model.program.run(np.array([token], dtype=np.int32), position)[0]
                if CTX // 2 <= position < CTX - 1:
                    shifted = logits.astype(np.float64) - logits.max()
                    rows.append(shifted - np.log(np.exp(shifted).sum()))
                    targets.append(chunk[position + 1])
    return np.array(rows), np.array(targets)


def test_perplexity_is_the_protocols(folder: Path) -> None:
    report = read_json(
        "perplexity", folder / "f16.gguf", "-f", folder / "t.txt", "--ctx", CTX, "--chunks", CHUNKS
    )
    rows, targets = log_softmax_of(folder / "f16.gguf")
    nll = -rows[np.arange(len(rows)), targets]
    assert report["tokens"] == len(nll) == CHUNKS * (CTX - 1 - CTX // 2)
    assert report["chunks"] == CHUNKS
    assert report["perplexity"] == pytest.approx(math.exp(nll.mean()), rel=1e-5)
    error = math.exp(nll.mean()) * nll.std() / math.sqrt(len(nll) - 1)
    assert report["error"] == pytest.approx(error, rel=1e-5)
    assert report["seconds"] > 0
    assert report["activations"] == "float32"
    assert report["device"].startswith("NumPy")


def test_compare_reckons_kl_and_ratio(folder: Path) -> None:
    files = ["f16.gguf", "q8_0.gguf", "other.gguf", "f16.gguf"]
    report = read_json(
        "compare", *(folder / name for name in files), "-f", folder / "t.txt", "--ctx", CTX,
        "--chunks", CHUNKS,
    )  # fmt: skip
    rows, targets = zip(*(log_softmax_of(folder / name) for name in files), strict=True)
    picked = np.arange(len(targets[0])), targets[0]
    assert report["reference"]["name"] == "f16.gguf"
    assert [model["name"] for model in report["candidates"]] == files[1:]
    twice = read_json("compare", *[folder / "f16.gguf"] * 3, "-f", folder / "t.txt", "--ctx", CTX)
    assert twice["candidates"][0]["name"] == str(folder / "f16.gguf")
    base = -rows[0][picked]
    assert report["reference"]["perplexity"] == pytest.approx(math.exp(base.mean()), rel=1e-5)
    for model, found in zip(report["candidates"], rows[1:], strict=True):
        kl = np.sum(np.exp(rows[0]) * (rows[0] - found), axis=1)
        nll = -found[picked]
        count = math.sqrt(len(kl) - 1)
        assert model["kl"] == pytest.approx(kl.mean(), rel=1e-3, abs=1e-9)
        assert model["kl_error"] == pytest.approx(kl.std() / count, rel=1e-3, abs=1e-9)
        assert model["perplexity"] == pytest.approx(math.exp(nll.mean()), rel=1e-5)
        ratio = math.exp(nll.mean() - base.mean())
        assert model["perplexity_ratio"] == pytest.approx(ratio, rel=1e-5)
        error = ratio * (nll - base).std() / count
        assert model["perplexity_ratio_error"] == pytest.approx(error, rel=1e-3, abs=1e-9)
        top = np.mean(rows[0].argmax(1) == found.argmax(1))
        assert model["same_top"] == pytest.approx(top)
    small, large, none = report["candidates"]
    assert 0 < small["kl"] < large["kl"]
    assert small["same_top"] > large["same_top"]
    assert (none["kl"], none["perplexity_ratio"], none["same_top"]) == (0, 1, 1)
    assert report["tokens"] == len(base)


def test_tables(folder: Path) -> None:
    arguments = ("-f", folder / "t.txt", "--ctx", CTX)
    result = invoke("perplexity", folder / "f16.gguf", *arguments)
    assert result.stdout.startswith("PPL = ")
    assert "tokens/s on NumPy" in result.stderr
    result = invoke("compare", folder / "f16.gguf", folder / "q8_0.gguf", *arguments)
    assert "q8_0.gguf" in result.stdout
    assert "same top" in result.stdout
    for command, files in (("perplexity", 1), ("compare", 2)):
        quiet = invoke(command, *[folder / "f16.gguf"] * files, *arguments, "-q")
        assert (quiet.stdout, quiet.stderr, quiet.exit_code) == ("", "", 0)


@pytest.mark.parametrize(("command", "files"), [("perplexity", 1), ("compare", 2)])
def test_too_short_a_text_says_both_numbers(folder: Path, command: str, files: int) -> None:
    short = folder / "short.txt"
    short.write_text("x" * 30)
    with pytest.raises(TextError, match=r"short\.txt: has 31 tokens.*two chunks of 16.*32"):
        invoke(command, *[folder / "f16.gguf"] * files, "-f", short, "--ctx", CTX)


def test_compare_refuses_another_vocabulary(folder: Path) -> None:
    arguments = ("-f", folder / "t.txt", "--ctx", CTX)
    swapped = write_model(folder / "swapped.gguf", tokens=(TOKENS[1], TOKENS[0], *TOKENS[2:]))
    with pytest.raises(UnsupportedError, match=r"swapped\.gguf: its token 0 is 'ā'.*'Ā'"):
        invoke("compare", folder / "f16.gguf", swapped, *arguments)
    padded = write_model(folder / "padded.gguf", tokens=(*TOKENS, "[PAD0]", "[PAD1]"))
    with pytest.raises(UnsupportedError, match=r"padded\.gguf: its vocabulary has 262.*260"):
        invoke("compare", folder / "f16.gguf", padded, *arguments)


def test_usage(folder: Path) -> None:
    model, text = folder / "f16.gguf", folder / "t.txt"
    assert invoke("compare", model, "-f", text).exit_code == 2
    assert invoke("perplexity", model).exit_code == 2
    assert invoke("perplexity", model, "-f", text, "--ctx", 3).exit_code == 2
    assert invoke("perplexity", model, "-f", text, "--chunks", 0).exit_code == 2
