"""What commands show of names and sizes: as it is, and nothing that a terminal obeys."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import typed
from toys import write_model

from edgequant.cli import console, options
from edgequant.cli.words import count, size, visible

HOSTILE = "[/b] [v2] :smile: \x1b[2J"
SHOWN = r"[/b] [v2] :smile: \x1b[2J"


@pytest.mark.parametrize(("text", "shown"), [
    ("blk.0.attn_q.weight", "blk.0.attn_q.weight"), ("größe 東京", "größe 東京"),
    ("two\nlines", r"two\nlines"), ("a\u200bb", r"a\u200bb"), ("\ud800", r"\ud800"),
    (HOSTILE, SHOWN),
])  # fmt: skip
def test_what_is_visible(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize(("nbytes", "words"), [
    (0, "0.00 MiB"), (7_654_321, "7.30 MiB"), (2**30 - 1, "1,024.00 MiB"), (2**30, "1.00 GiB"),
    (4_920_000_000, "4.58 GiB"), (3 * 2**40, "3,072.00 GiB"),
])  # fmt: skip
def test_sizes(nbytes: int, words: str) -> None:
    assert size(nbytes) == words


def test_tables_show_names_as_they_are(tmp_path: Path, rng: np.random.Generator) -> None:
    arrays = {f"{HOSTILE}.weight": rng.standard_normal((4, 288), np.float32)}
    model = write_model(tmp_path / "[v2].gguf", arrays, {})
    output = tmp_path / "[v3].gguf"
    done = typed.invoke("quantize", model, "-o", output, "--type", "q4_k_m")
    assert done.stdout.count(f"{SHOWN}.weight") == 2  # among the worst, and in a note
    assert "[v3].gguf: Q4_K_M" in done.stdout
    assert "\x1b" not in done.stdout


def test_the_bar_shows_names_as_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm"), ("COLUMNS", "200")):
        monkeypatch.setenv(name, value)
    with options.shown_progress(quiet=False) as progress:
        progress.begin("[/c]", 2, "bytes")
        progress.advance(1, HOSTILE)
        progress.say(HOSTILE)
    shown = capsys.readouterr().err
    assert "[/c]" in shown
    assert SHOWN in shown
    assert "\x1b[2J" not in shown


def test_json_survives_any_encoding_and_holds_only_what_json_can(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options.print_json({"text": "größe 東京", "name": "\udcff", "rates": (math.inf, math.nan, 1.5)})
    printed = capsys.readouterr().out
    assert printed.isascii()
    assert json.loads(printed) == {
        "text": "größe 東京", "name": r"\udcff", "rates": [None, None, 1.5],
    }  # fmt: skip


def test_the_bar_leaves_room_for_the_echo_of_ctrl_c(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm"), ("COLUMNS", "80")):
        monkeypatch.setenv(name, value)
    with options.shown_progress(quiet=False) as progress:
        progress.begin("quantize", 2, "bytes")
        progress.advance(1, "a name that is longer than the line " * 3)
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err).splitlines()
    assert 60 < max(map(len, lines)) < 80 - len("^C")


@pytest.mark.parametrize(("done", "seconds", "unit", "words"), [
    (1536, 3.0, "tokens", "512.0 tokens/s"), (5 * 2**20, 2.0, "bytes", "2.50 MiB/s"),
    (0, 2.0, "runs", "0.0 runs/s"), (512, 0.0, "tokens", ""),
])  # fmt: skip
def test_rates(done: float, seconds: float, unit: str, words: str) -> None:
    assert console._rate(done, seconds, unit) == words


@pytest.mark.parametrize(("number", "words"), [
    (0, "0 chunks"), (1, "1 chunk"), (1200, "1,200 chunks"),
])  # fmt: skip
def test_counts(number: int, words: str) -> None:
    assert count(number, "chunk") == words
