"""What commands show of names and sizes: as it is, and nothing that a terminal obeys."""

from pathlib import Path

import numpy as np
import pytest
import typed
from toys import write_model

from edgequant.cli import options
from edgequant.cli.words import size, visible

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
