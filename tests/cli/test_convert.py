"""`edgequant convert` as a user meets it: what it prints, where, and how it ends."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import typed
from bench.make_checkpoint import Shape, write_checkpoint
from click.testing import CliRunner
from tiny_checkpoint import OUTPUT, UP, make_tensors, write_tiny

from edgequant.cli import cli
from edgequant.errors import FileError


@pytest.fixture
def tiny(tmp_path: Path, rng: np.random.Generator) -> Path:
    return write_tiny(tmp_path / "tiny", make_tensors(rng))


def test_the_report_is_on_stdout_and_nothing_else(tiny: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["convert", str(tiny), "-o", str(tmp_path / "a.gguf")])
    assert result.exit_code == 0
    assert result.stderr == ""
    lines = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert lines["output"] == str(tmp_path / "a.gguf")
    assert (lines["architecture"], lines["type"], lines["tensors"]) == ("llama", "F16", "21")


def test_notes_are_listed(tmp_path: Path, rng: np.random.Generator) -> None:
    tensors = make_tensors(rng)
    tensors[UP][0, 0] = 1e6
    source = write_tiny(tmp_path / "tiny", tensors)
    result = CliRunner().invoke(cli, ["convert", str(source), "-o", str(tmp_path / "a.gguf")])
    assert "note          'blk.1.ffn_up.weight' is kept in BF16" in result.stdout


def test_json(tiny: Path, tmp_path: Path) -> None:
    output = tmp_path / "a.gguf"
    args = ["convert", str(tiny), "-o", str(output), "--outtype", "auto", "--json"]
    result = CliRunner().invoke(cli, args)
    report = json.loads(result.stdout)
    assert report.pop("seconds") > 0
    assert report == {
        "output": str(output),
        "architecture": "llama",
        "outtype": "BF16",
        "tensors": 21,
        "parameters": sum(
            tensor.size for tensor in make_tensors(np.random.default_rng(0)).values()
        ),
        "bytes": output.stat().st_size,
        "notes": [],
    }


def test_quiet(tiny: Path, tmp_path: Path) -> None:
    args = ["convert", str(tiny), "-o", str(tmp_path / "a.gguf"), "-q"]
    result = CliRunner().invoke(cli, args)
    assert (result.exit_code, result.output) == (0, "")


def test_force(tiny: Path, tmp_path: Path) -> None:
    args = ["convert", str(tiny), "-o", str(tmp_path / "a.gguf")]
    assert CliRunner().invoke(cli, args).exit_code == 0
    assert isinstance(CliRunner().invoke(cli, args).exception, FileError)
    assert CliRunner().invoke(cli, [*args, "--force"]).exit_code == 0


def test_errors_go_to_stderr_with_a_hint_and_exit_1(
    tmp_path: Path, rng: np.random.Generator, capsys: pytest.CaptureFixture[str]
) -> None:
    tensors = make_tensors(rng)
    del tensors[OUTPUT]
    source = write_tiny(tmp_path / "tiny", tensors)
    output = tmp_path / "a.gguf"
    assert typed.exits_with("convert", source, "-o", output) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"Error: {source}: 'lm_head.weight' is missing")
    assert "\nHint: download" in printed.err
    assert not output.exists()
    assert typed.exits_with("convert", source, "-o", output, "--debug") == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_file_cannot_command_the_terminal(
    tmp_path: Path, rng: np.random.Generator, capsys: pytest.CaptureFixture[str]
) -> None:
    tensors = make_tensors(rng) | {"\x1b[2Jé\udcff": np.zeros(3, np.float32)}
    source = write_tiny(tmp_path / "tiny", tensors)
    assert typed.exits_with("convert", source, "-o", tmp_path / "a.gguf") == 1
    assert r"'\x1b[2Jé\udcff' is left over" in capsys.readouterr().err


@pytest.mark.parametrize(
    "args", [[], ["there"], ["there", "-o", "a.gguf", "--outtype", "q8_0"], ["-o", "a.gguf"]]
)
def test_usage_errors_exit_2(args: list[str]) -> None:
    assert typed.exits_with("convert", *args) == 2


def test_a_full_disk_is_named(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = type("usage", (), {"total": 10**9, "used": 10**9 - 1000, "free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda _path: usage)
    assert typed.exits_with("convert", tiny, "-o", tmp_path / "a.gguf") == 1
    assert "but its disk has 1,000 free" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]


@pytest.fixture
def bigger(tmp_path: Path) -> Path:
    """A checkpoint that takes a moment, of two shards' worth of tensors."""
    write_checkpoint(tmp_path / "bigger", Shape(6, 512, 8, 4, 1536, 4096), seed=1)
    return tmp_path / "bigger"


@pytest.mark.parametrize("name", ["SIGINT", "SIGKILL"])
@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_a_stopped_conversion_leaves_no_file_under_the_name(
    bigger: Path, tmp_path: Path, name: str
) -> None:
    output = tmp_path / "out" / "a.gguf"
    output.parent.mkdir()
    command = [sys.executable, "-m", "edgequant", "convert", str(bigger), "-o", str(output)]
    for _ in range(10):  # it may be done before the signal comes
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        deadline = time.monotonic() + 60
        while not any(output.parent.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.001)  # until there is a file of some name
        process.send_signal(getattr(signal, name))
        _, errors = process.communicate(timeout=60)
        if process.returncode != 0:
            break
        output.unlink()
    assert not output.exists()
    if name == "SIGINT":
        assert (process.returncode, errors.strip()) == (130, "Interrupted.")
        assert list(output.parent.iterdir()) == []
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=60)
    assert output.stat().st_size > 30_000_000
