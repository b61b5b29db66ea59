"""`edgequant tune` as it is typed."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import typed
from tiny_model import SIZES, write_model

from edgequant.stages.quantize import quantize

WIDE = replace(SIZES, layers=1, embed=256, heads=4, heads_kv=2, head_dim=64, ffn=256)


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    folder = tmp_path_factory.mktemp("tune")
    full = write_model(folder / "full.gguf", sizes=WIDE)
    quantize(full, folder / "q2.gguf", type="Q2_K")
    (folder / "a.txt").write_text("The hello of the low halo, he said; " * 6)
    options = ["--reference", full, "-f", folder / "a.txt", "--ctx", 16, "--chunks", 4]
    return ["tune", folder / "q2.gguf", *options]


def test_json(words: list[object], tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    report = typed.read_json(*words, "-o", out, "--passes", 3, "--batch", 2, "--rate", 0.02)
    assert set(report) == {
        "output", "tuned", "changed", "datasets", "chunks", "held_back", "chunk_size", "steps",
        "kl_before", "kl_after", "seconds",
    }  # fmt: skip
    assert (report["output"], report["datasets"]) == (str(out), ["a.txt"])
    assert (report["chunks"], report["held_back"], report["steps"]) == (3, 1, 5)
    assert report["kl_after"] < report["kl_before"]


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
