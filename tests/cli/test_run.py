"""`edgequant run` on a tiny model: what comes out where, when it stops, and what it refuses."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typed
from click.testing import Result
from tiny_model import CONTEXT, EOS, TEMPLATE, TOKENS, write_model

from edgequant.cli.run import _write
from edgequant.device import open_device
from edgequant.errors import TextError, UnsupportedError
from edgequant.runtime.model import open_model
from edgequant.stages.generate import generate


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("run") / "m.gguf")


def run(*arguments: object, **options: Any) -> Result:
    return typed.invoke("run", *arguments, "--device", "cpu", **options)


def read_json(*arguments: object) -> dict[str, Any]:
    report = typed.read_json("run", *arguments, "--device", "cpu", "-q")
    assert isinstance(report, dict)
    return report


def test_text_goes_to_stdout_and_figures_to_stderr(model: Path) -> None:
    result = run(model, "-p", "hello", "-n", 8, "--temp", 0)
    report = read_json(model, "-p", "hello", "-n", 8, "--temp", 0)
    assert result.exit_code == 0
    assert result.stdout == report["text"] + "\n"
    for word in ("load", "prefill", "decode", "t/s", "peak memory", "MiB", "NumPy", "float32"):
        assert word in result.stderr
    for quiet in ("-q", "--json"):  # the figures are in the report
        assert run(model, "-p", "hello", "-n", 8, "--temp", 0, quiet).stderr == ""


def test_json_has_the_promised_keys(model: Path) -> None:
    report = read_json(model, "-p", "hello", "-n", 8, "--temp", 0)
    assert set(report) >= {
        "text", "tokens", "prompt_tokens", "load_seconds", "prefill_tokens_per_second",
        "decode_tokens_per_second", "peak_memory_bytes", "device", "activations", "seed",
    }  # fmt: skip
    assert report["tokens"] == 8
    assert report["prompt_tokens"] == 4  # BOS, he, l, lo
    assert report["stopped"] == "length"
    assert report["activations"] == "float32"
    assert report["peak_memory_bytes"] > 1 << 20
    assert report["decode_tokens_per_second"] > 0


def test_greedy_text_is_the_argmax_of_each_step(model: Path) -> None:
    report = read_json(model, "-p", "hello", "-n", 12, "--temp", 0)
    with open_model(model, open_device("cpu")) as opened:
        ids = list(opened.tokenizer.encode("hello"))
        for _ in range(12):
            ids.append(int(opened.program.run(ids, 0)[0].argmax()))
        assert report["text"] == opened.tokenizer.decode(ids[4:])


def test_a_seed_gives_the_same_text(model: Path) -> None:
    arguments = (model, "-p", "hello", "-n", 20, "--temp", 2, "--top-k", 0, "--top-p", 1)
    first = read_json(*arguments, "--min-p", 0, "--seed", 5)
    assert first["seed"] == 5
    assert read_json(*arguments, "--min-p", 0, "--seed", 5)["text"] == first["text"]
    assert read_json(*arguments, "--min-p", 0, "--seed", 6)["text"] != first["text"]
    drawn = read_json(*arguments, "--min-p", 0)
    again = read_json(*arguments, "--min-p", 0, "--seed", drawn["seed"])
    assert again["text"] == drawn["text"]


def test_a_repeat_penalty_changes_a_text_that_repeats(model: Path) -> None:
    arguments = (model, "-p", "hello", "-n", 40, "--temp", 0)
    assert read_json(*arguments)["text"] != read_json(*arguments, "--repeat-penalty", 2)["text"]


def test_it_stops_at_the_end_of_the_context(model: Path) -> None:
    report = read_json(model, "-p", "hello", "--ctx", 10, "--temp", 0)
    # The last token is drawn from a full cache, and is not fed.
    assert (report["tokens"], report["stopped"]) == (10 - 4 + 1, "context")
    full = read_json(model, "-p", "x" * (CONTEXT - 1), "--temp", 0)
    assert (full["prompt_tokens"], full["tokens"]) == (CONTEXT, 1)
    assert full["decode_tokens_per_second"] is None


def test_it_stops_at_a_token_that_ends_the_text(tmp_path: Path, model: Path) -> None:
    ids = [258, 256, 108, 257]
    with open_model(model, open_device("cpu")) as opened:
        for _ in range(6):
            ids.append(int(opened.program.run(ids, 0)[0].argmax()))
        ends = ids.pop()
        ids = ids[4:]
        ids = ids[: ids.index(ends)] if ends in ids else ids
        expected = opened.tokenizer.decode(ids)
    path = write_model(tmp_path / "ends.gguf", keys={"tokenizer.ggml.eos_token_id": ends})
    report = read_json(path, "-p", "hello", "--temp", 0)
    assert (report["text"], report["tokens"], report["stopped"]) == (expected, len(ids), "end")


def test_nothing_to_generate(model: Path) -> None:
    report = read_json(model, "-p", "hello", "-n", 0)
    assert (report["text"], report["tokens"], report["stopped"]) == ("", 0, "length")


def test_a_prompt_longer_than_the_context_says_both_numbers(model: Path) -> None:
    with pytest.raises(TextError, match=r"the prompt has 65 tokens, but the context holds 64\."):
        run(model, "-p", "x" * CONTEXT)


def test_an_empty_prompt_is_bos_or_refused(model: Path, tmp_path: Path) -> None:
    assert read_json(model, "-p", "", "-n", 1)["prompt_tokens"] == 1
    path = write_model(tmp_path / "m.gguf", keys={"tokenizer.ggml.add_bos_token": False})
    with pytest.raises(TextError, match="the prompt is empty"):
        run(path, "-p", "")


@pytest.mark.parametrize("prompt", ["hello", "<bos>hello"])
def test_bos_is_never_doubled(model: Path, prompt: str) -> None:
    assert read_json(model, "-p", prompt, "-n", 1)["prompt_tokens"] == 4


def test_no_eos_follows_a_prompt(tmp_path: Path, model: Path) -> None:
    path = write_model(tmp_path / "m.gguf", keys={"tokenizer.ggml.add_eos_token": True})
    report = read_json(path, "-p", "hello", "-n", 5, "--temp", 0)
    assert report["text"] == read_json(model, "-p", "hello", "-n", 5, "--temp", 0)["text"]
    assert report["prompt_tokens"] == 4


def test_chat_uses_the_template(tmp_path: Path, model: Path) -> None:
    path = write_model(tmp_path / "m.gguf", keys={"tokenizer.chat_template": TEMPLATE})
    chat = read_json(path, "-p", "hello", "-n", 8, "--temp", 0, "--chat")
    plain = read_json(model, "-p", "[user]hello", "-n", 8, "--temp", 0)
    assert chat["text"] == plain["text"]
    assert chat["prompt_tokens"] == plain["prompt_tokens"]  # the template's BOS is the only one
    with pytest.raises(UnsupportedError, match=r"m\.gguf: has no chat template"):
        run(model, "-p", "hello", "--chat")


def test_a_prompt_from_stdin(model: Path) -> None:
    given = run(model, "-p", "-", "-n", 5, "--temp", 0, input="hello")
    assert given.stdout == run(model, "-p", "hello", "-n", 5, "--temp", 0).stdout
    with pytest.raises(TextError, match="stdin: byte 1 of 2 is not UTF-8"):
        run(model, "-p", "-", input=b"a\xff")


def test_pieces_come_as_they_are_made(model: Path) -> None:
    pieces: list[str] = []
    report = generate(model, "hello", device="cpu", limit=30, emit=pieces.append)
    assert "".join(pieces) == report.text
    assert len(pieces) > 1
    assert all(pieces)


def test_interrupt_keeps_the_text_and_the_figures(model: Path) -> None:
    pieces: list[str] = []

    def stop(text: str) -> None:
        pieces.append(text)
        if len(pieces) == 3:
            raise KeyboardInterrupt

    report = generate(model, "hello", device="cpu", emit=stop)
    assert report.stopped == "interrupt"
    assert report.text.startswith("".join(pieces))
    assert report.tokens >= 3


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no SIGINT to one process")
def test_ctrl_c_prints_the_figures_and_exits_130(tmp_path: Path) -> None:
    keys = {"llama.context_length": 100_000, "tokenizer.ggml.eos_token_id": None}
    path = write_model(tmp_path / "m.gguf", tokens=(*TOKENS[:EOS], "<pad>"), keys=keys)
    words = f"-m edgequant run {path} -p x --ctx 100000 --temp 0 --device cpu".split()
    process = subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.read(1)  # it has begun
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert b"stopped by  interrupt" in errors
    assert b"peak memory" in errors
    assert b"Traceback" not in errors


def test_an_encoding_that_lacks_letters_is_no_error(model: Path) -> None:
    words = f"-m edgequant run {model} -p x -n 9 --temp 0 --device cpu -q".split()
    done = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        check=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )
    text = read_json(model, "-p", "x", "-n", 9, "--temp", 0)["text"]
    assert not text.isascii()
    assert done.stdout == (text + "\n").encode("ascii", "replace")
    assert done.stderr == b""


def test_control_characters_do_not_reach_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "\x1b]0;title\x07 a\tb\n \x9b31m é 日本\u3000語 👩\u200d💻"
    _write(text)
    assert capsys.readouterr().out == text
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    _write(text)
    shown = "\\x1b]0;title\\x07 a\tb\n \\x9b31m é 日本\u3000語 👩\u200d💻"
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize(
    "arguments",
    [
        ("--temp", -1), ("--top-k", -1), ("--top-p", 1.5), ("--min-p", -0.1), ("--seed", -1),
        ("--repeat-penalty", 0), ("--repeat-penalty", 1e39), ("--ctx", 0), ("-n", -2),
        ("--temp", "nan"), ("--temp", "inf"), ("--top-p", "nan"), ("--repeat-penalty", "nan"),
    ],
)  # fmt: skip
def test_numbers_out_of_range_are_usage_errors(model: Path, arguments: tuple[object, ...]) -> None:
    result = run(model, "-p", "x", *arguments)
    assert result.exit_code == 2
    assert "range" in result.stderr


def test_the_prompt_is_required(model: Path) -> None:
    assert run(model).exit_code == 2
