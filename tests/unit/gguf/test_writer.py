"""The writer: whole or not at all, and never over what it should not touch."""

import errno
import os
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgequant.blocks import BLOCK_TYPES, TensorInfo
from edgequant.errors import FileError, GGUFError
from edgequant.gguf.destination import check_output
from edgequant.gguf.layout import lay_out
from edgequant.gguf.reader import open_file
from edgequant.gguf.spec import KeyValue, ValueType, array, boolean, f32, string, u32
from edgequant.gguf.writer import Output, open_output

F32, Q4_K = BLOCK_TYPES["F32"], BLOCK_TYPES["Q4_K"]
INFOS = [TensorInfo("a", F32, (3, 5)), TensorInfo("b", Q4_K, (2, 256)), TensorInfo("c", F32, ())]
KEYS = {"name": "ours", "size": 3}
POSIX = pytest.mark.skipif(os.name == "nt", reason="Windows has no such thing")


def fill(output: Output, infos: list[TensorInfo] = INFOS) -> None:
    for info in infos:
        output.append(info.name, np.full((info.rows, info.nbytes // info.rows), 7, np.uint8))


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def write(path: Path, **options: Any) -> None:
    with open_output(path, KEYS, INFOS, **options) as output:
        fill(output)


def test_what_was_written_is_read(tmp_path: Path, rng: np.random.Generator) -> None:
    path = tmp_path / "out.gguf"
    rows = {i.name: rng.integers(0, 256, (i.rows, i.nbytes // i.rows), np.uint8) for i in INFOS}
    keys = {
        "plain": "text", "empty": "", "none": [], "u8": KeyValue(ValueType.UINT8, 200),
        "array": array(ValueType.FLOAT64, [0.1, 2.0]), "u32": u32(7), "f32": f32(0.5),
        "yes": boolean(True), "string": string("日本"), "flags": [True, False], "big": 1 << 40,
    }  # fmt: skip
    with open_output(path, keys, INFOS) as output:
        output.append("a", rows["a"][:1])
        output.append("a", rows["a"][1:])
        output.append("b", rows["b"][::-1][::-1])
        output.append("c", rows["c"])
    with open_file(path) as file:
        assert list(file.keys) == list(keys)
        assert file.values() == {**{key: getattr(v, "value", v) for key, v in keys.items()}}
        assert list(file.tensors.values()) == INFOS
        for name, weight in file.weights().items():
            assert weight.data.tobytes() == rows[name].tobytes()
    assert path.stat().st_size % 32 == 0
    assert names(tmp_path) == ["out.gguf"]


def test_a_files_keys_are_copied_as_they_are(tmp_path: Path, forge: Any) -> None:
    payload = forge.text(b"\xff\xfe") + forge.text("ok")
    forged = [
        forge.array("tokens", ValueType.STRING, 2, payload),
        forge.array("types", ValueType.INT8, 2, b"\xff\x01"),
        forge.key("u16", ValueType.UINT16, b"\x01\x02"),
        forge.key("empty", ValueType.STRING, forge.text("")),
    ]
    source = forge.file(forged)
    copy, plain = tmp_path / "copy.gguf", tmp_path / "plain.gguf"
    with forge.open(source) as file, open_output(copy, file.keys, []):
        pass
    assert copy.read_bytes() == source
    with open_file(copy) as file, open_output(plain, file.values(), []):
        pass
    with open_file(plain) as file:
        assert file.keys["tokens"].value.encoded == payload  # type: ignore[attr-defined]


def test_alignment_is_obeyed(tmp_path: Path) -> None:
    path = tmp_path / "out.gguf"
    with open_output(path, {"general.alignment": 256}, INFOS) as output:
        fill(output)
    with open_file(path) as file:
        assert file.alignment == 256
        assert all(set(w.data.ravel().tolist()) == {7} for w in file.weights().values())
    with pytest.raises(GGUFError, match=r"out.gguf: general.alignment is 3 \(UINT32\)"):
        open_output(path, {"general.alignment": 3}, [], force=True).__enter__()


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, FileError])
def test_what_fails_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    raised = error("stop", hint="none.") if error is FileError else error("stop")

    def fail() -> None:
        with open_output(tmp_path / "out.gguf", KEYS, INFOS) as output:
            output.append("a", np.zeros((3, 20), np.uint8))
            assert len(names(tmp_path)) == 1
            raise raised

    with pytest.raises(error):
        fail()
    assert names(tmp_path) == []


def test_what_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "out.gguf"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError), open_output(path, KEYS, INFOS, force=True):
        raise RuntimeError
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["out.gguf"]


KILLED = """
import sys, time
import numpy as np
from pathlib import Path
from edgequant.blocks import BLOCK_TYPES, TensorInfo
from edgequant.gguf.writer import open_output
info = TensorInfo("a", BLOCK_TYPES["F32"], (1000, 1000))
with open_output(Path(sys.argv[1]), {}, [info]) as output:
    for row in range(1000):
        output.append("a", np.zeros((1, 4000), np.uint8))
        if row == int(sys.argv[2]):
            print("here", flush=True)
            time.sleep(60)
"""


@POSIX
@pytest.mark.parametrize("row", [0, 500, 999])
@pytest.mark.parametrize("signal_name", ["SIGKILL", "SIGINT"])
def test_a_killed_writer_leaves_no_final_file(tmp_path: Path, row: int, signal_name: str) -> None:
    path = tmp_path / "out.gguf"
    command = [sys.executable, "-c", KILLED, path, str(row)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        process.send_signal(signal.Signals[signal_name])
        assert process.wait(30) != 0
    left = names(tmp_path)
    if signal_name == "SIGINT":
        assert left == []
    else:
        assert [name for name in left if not name.startswith(".edgequant-")] == []
        write(path)  # what was left is not in the way


@pytest.mark.parametrize(
    ("appended", "message"),
    [
        ([("b", 4)], "b: 4 bytes, but next is a with 60"),
        ([("a", 61)], "a: 61 bytes, but next is a with 60"),
        ([("a", 60), ("b", 144), ("c", 4)], "c: 4 bytes, but next is b with 144"),
        ([("a", 60), ("b", 288), ("c", 4), ("c", 4)], "c: 4 bytes, but next is none"),
        ([("a", 60), ("b", 144)], "b: not complete"),
        ([("a", 60), ("b", 288)], "c: not complete"),
        ([], "a: not complete"),
    ],
)
def test_what_was_not_announced_is_a_bug(
    tmp_path: Path, appended: list[tuple[str, int]], message: str
) -> None:
    def write_wrongly() -> None:
        with open_output(tmp_path / "out.gguf", KEYS, INFOS) as output:
            for name, nbytes in appended:
                output.append(name, np.zeros((1, nbytes), np.uint8))

    with pytest.raises(ValueError, match=message):
        write_wrongly()
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("keys", "infos", "message"),
    [
        ({}, [INFOS[0], INFOS[0]], r"out.gguf: would hold tensor 'a' twice"),
        (
            {},
            [TensorInfo("é" * 32, F32, (1,))],
            r"out.gguf: tensor name 'é{32}' has 64 bytes; llama.cpp reads at most 63",
        ),
        ({}, [TensorInfo("a", F32, (1, 1, 1, 1, 1))], r"tensor 'a' has shape \(1, 1, 1, 1, 1\)"),
        ({}, [TensorInfo("a", F32, (0, 4))], r"tensor 'a' has shape \(0, 4\)"),
        (
            {"template": "a\ud800"},
            [],
            r"out.gguf: key 'template' would hold text that is not Unicode: character "
            r"'\\ud800' at position 1",
        ),
        ({"tokens": ["a", "\ud800"]}, [], r"key 'tokens' would hold text that is not Unicode"),
    ],
)
def test_what_the_format_cannot_hold(
    tmp_path: Path, keys: dict[str, object], infos: list[TensorInfo], message: str
) -> None:
    with pytest.raises(GGUFError, match=message):
        open_output(tmp_path / "out.gguf", keys, infos).__enter__()
    assert names(tmp_path) == []


def test_names_of_63_bytes_are_written(tmp_path: Path) -> None:
    info = TensorInfo("a" * 63, F32, (1,))
    with open_output(tmp_path / "out.gguf", {}, [info]) as output:
        fill(output, [info])
    with open_file(tmp_path / "out.gguf") as file:
        assert list(file.tensors) == ["a" * 63]


def test_an_existing_file_is_kept_without_force(tmp_path: Path) -> None:
    path = tmp_path / "out.gguf"
    path.write_bytes(b"old")
    with pytest.raises(FileError, match=r"out.gguf: exists\.") as caught:
        write(path)
    assert "--force" in caught.value.hint
    assert path.read_bytes() == b"old"
    write(path, force=True)
    assert path.read_bytes()[:4] == b"GGUF"


def test_a_file_that_appeared_meanwhile_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "out.gguf"

    def write_meanwhile() -> None:
        with open_output(path, KEYS, INFOS) as output:
            fill(output)
            path.write_bytes(b"theirs")

    with pytest.raises(FileError, match="exists"):
        write_meanwhile()
    assert path.read_bytes() == b"theirs"
    assert names(tmp_path) == ["out.gguf"]


def linked(path: Path) -> Iterator[Path]:
    """Other names of one file."""
    yield path
    yield path.parent / "folder" / ".." / path.name
    symbolic, hard = path.with_name("symbolic.gguf"), path.with_name("hard.gguf")
    symbolic.symlink_to(path)
    hard.hardlink_to(path)
    yield from (symbolic, hard)


@POSIX
def test_an_input_is_never_the_output(tmp_path: Path) -> None:
    source = tmp_path / "in.gguf"
    write(source)
    before = source.read_bytes()
    (tmp_path / "folder").mkdir()
    for name in linked(source):
        with pytest.raises(FileError, match=r"is the input '.*in.gguf' itself"):
            write(name, force=True, inputs=[tmp_path / "absent", source])
    assert source.read_bytes() == before


@POSIX
def test_a_symbolic_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    link = tmp_path / "out.gguf"
    link.symlink_to(tmp_path / "disk" / "model.gguf")
    write(link)
    assert link.is_symlink()
    assert names(tmp_path / "disk") == ["model.gguf"]
    loop = tmp_path / "loop.gguf"
    loop.symlink_to(loop)
    write(loop)
    assert loop.read_bytes()[:4] == b"GGUF"


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"out.gguf: its directory '.*absent' does not exist"):
        write(tmp_path / "absent" / "out.gguf")
    with pytest.raises(FileError, match=r"is a directory\."):
        write(tmp_path, force=True)
    with pytest.raises(FileError, match=r"its directory '.*test_writer.py' does not exist"):
        write(Path(__file__) / "out.gguf")


@POSIX
def test_a_device_is_no_output() -> None:
    with pytest.raises(FileError, match=r"/dev/null: is not a plain file"):
        write(Path("/dev/null"), force=True)


def test_a_directory_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root would get True of any
    with pytest.raises(FileError, match=r"out.gguf: its directory .* may not be written to"):
        check_output(tmp_path / "out.gguf")


def test_a_name_too_long(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"cannot be written: File name too long"):
        write(tmp_path / ("x" * 300))
    assert names(tmp_path) == []


def test_space_is_asked_for_before_the_first_byte(tmp_path: Path) -> None:
    infos = [TensorInfo("a", F32, (1 << 30, 1 << 20))]
    with pytest.raises(
        FileError,
        match=r"out.gguf: needs 4,503,599,627,370,\d+ bytes, but its disk has [\d,]+ free",
    ):
        open_output(tmp_path / "out.gguf", {}, infos).__enter__()
    assert names(tmp_path) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no disk that is always full")
def test_a_disk_that_fills_up_is_named() -> None:
    path = Path("out.gguf")
    output = Output(path, lay_out(path, KEYS, INFOS), [Path("/dev/full")], kept=[0])
    with pytest.raises(FileError, match=r"out.gguf: its disk or quota is full"):
        fill(output)
    output.abandon()


@POSIX
def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    import resource

    info = TensorInfo("a", F32, (1024, 1024))

    def write_all() -> None:
        with open_output(tmp_path / "out.gguf", {}, [info]) as output:
            fill(output, [info])

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(FileError, match=r"out.gguf: cannot be written: File too large"):
            write_all()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert names(tmp_path) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_says_so_only_at_the_end_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """As network disks do."""

    def full(_descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match=r"out\.gguf: its disk or quota is full\."):
        write(tmp_path / "out.gguf")
    assert names(tmp_path) == []


@POSIX
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_the_mode_is_the_users(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        write(tmp_path / "out.gguf")
    finally:
        os.umask(before)
    assert (tmp_path / "out.gguf").stat().st_mode & 0o777 == 0o666 & ~mask


def test_writing_streams(tmp_path: Path) -> None:
    info = TensorInfo("a", F32, (64, 1 << 18))
    chunk = np.zeros((1, 1 << 20), np.uint8)
    tracemalloc.start()
    try:
        with open_output(tmp_path / "out.gguf", {}, [info]) as output:
            for _ in range(64):
                output.append("a", chunk)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_file_may_replace_one_that_is_still_mapped(tmp_path: Path) -> None:
    path = tmp_path / "out.gguf"
    write(path)
    with open_file(path) as file:
        weights = file.weights()
    write(path, force=True)
    assert set(weights["a"].data.ravel().tolist()) == {7}
