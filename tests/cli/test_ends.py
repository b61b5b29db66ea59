"""How the program ends when asked to, when nobody reads it, and when the disk of stdout is full."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bench.make_checkpoint import Shape, write_sparse_model
from tiny_model import write_model

from edgequant.cli import COMMANDS, _end_as_ctrl_c_does, cli

POSIX = pytest.mark.skipif(os.name == "nt", reason="signals, limits and a shell of POSIX")
PROGRAM = [sys.executable, "-m", "edgequant"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("ends") / "m.gguf")


@POSIX
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_who_asks_it_to_end_finds_nothing_half_written(tmp_path: Path, name: str) -> None:
    write_sparse_model(tmp_path / "m.gguf", Shape(4, 1024, 8, 4, 4096, 512))
    output = tmp_path / "out" / "m.gguf"
    output.parent.mkdir()
    words = ["quantize", tmp_path / "m.gguf", "-o", output, "--type", "Q4_K_M", "--threads", "1"]
    process = subprocess.Popen(
        [*PROGRAM, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # These tests may themselves run under nohup, which children inherit.
        preexec_fn=lambda: signal.signal(getattr(signal, name), signal.SIG_DFL),
    )
    while process.poll() is None and not any(output.parent.iterdir()):
        time.sleep(0.001)  # until there is a file of some name
    process.send_signal(getattr(signal, name))
    assert process.communicate(timeout=60) == ("", "\nInterrupted.\n")
    assert process.returncode == 130
    assert list(output.parent.iterdir()) == []


@POSIX
def test_nohup_is_obeyed() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        _end_as_ctrl_c_does()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    "words",
    [("inspect",), ("inspect", "--json"), ("run", "-p", "he", "-n", 2),
     ("run", "-p", "he", "-n", 2, "--json", "-q")],
)  # fmt: skip
def test_a_reader_that_has_gone_is_no_news(model: Path, words: tuple[object, ...]) -> None:
    read, write = os.pipe()
    os.close(read)
    command, *rest = map(str, words)
    done = subprocess.run(
        [*PROGRAM, command, str(model), *rest], stdout=write, stderr=subprocess.PIPE, timeout=60
    )
    os.close(write)
    assert done.returncode == 1
    assert b"Error" not in done.stderr
    assert b"Traceback" not in done.stderr


@POSIX
@pytest.mark.parametrize("words", [("inspect",), ("inspect", "--json"), ("run", "-p", "he", "-q")])
def test_a_full_disk_under_stdout_is_named(
    model: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    import resource

    def fill_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    command, *rest = words
    with (tmp_path / "listing").open("w") as file:
        done = subprocess.run(
            [*PROGRAM, command, str(model), *rest], stdout=file, stderr=subprocess.PIPE,
            preexec_fn=fill_disk, text=True, timeout=60,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "Error: stdout: File too large."
    assert done.stderr.splitlines()[1].startswith("Hint: look at the disk")
    assert len(done.stderr.splitlines()) == 2


@POSIX
@pytest.mark.parametrize("closed", ["<&- >&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_are_no_error(model: Path, closed: str) -> None:
    shell = f"{' '.join(PROGRAM)} run {model} -p - -n 2 {closed}"
    done = subprocess.run(["sh", "-c", shell], input=b"he", capture_output=True, timeout=60)
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_may_not_be_read_is_no_wrong_usage(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = cli.make_context("edgequant", [command, "--help"], resilient_parsing=True)
    loaded = cli.get_command(context, command)
    assert loaded is not None
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root would get True of any
    for parameter in loaded.params:
        if hasattr(parameter.type, "path_type"):
            assert parameter.type.convert(__file__, parameter, context) == Path(__file__)
