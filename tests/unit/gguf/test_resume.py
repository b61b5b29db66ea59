"""What a run that was cut short leaves, and how the next one goes on."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgequant.blocks import BLOCK_TYPES, TensorInfo
from edgequant.errors import FileError
from edgequant.gguf import draft, writer
from edgequant.gguf.journal import Journal
from edgequant.gguf.layout import lay_out
from edgequant.gguf.writer import open_output

INFOS = [TensorInfo(f"t{i}", BLOCK_TYPES["F32"], (3 + i, 11)) for i in range(8)]
KEYS = {"general.name": "ours"}
PLAN = {"type": "Q4_K_M", "input's size": 3}
LIMITS = [None, 1200]  # one file, or three


class CutError(Exception):
    """Stands for what cuts a run short."""


@pytest.fixture(autouse=True)
def sync_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "SYNC_NBYTES", 300)  # after one to three tensors
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # the disk is not what is tested


def rows_of(info: TensorInfo) -> np.ndarray:
    return np.full((info.rows, 44), int(info.name[1:]) + 1, np.uint8)


def write(path: Path, limit: int | None, *, plan: Mapping[str, object] | None = PLAN,
          stop: Callable[[int], None] = lambda row: None, **options: Any) -> list[str]:  # fmt: skip
    """Write, calling `stop` before each row; returns the tensors that were not there already."""
    written, row = [], 0
    with open_output(path, KEYS, INFOS, part_nbytes=limit, resume=plan, **options) as output:
        for name, facts in output.finished.items():
            assert facts == {"name": name, "third": 1 / 3}
        for info in INFOS:
            if info.name in output.finished:
                continue
            written.append(info.name)
            for line in rows_of(info):
                stop(row)
                output.append(info.name, line[None])
                row += 1
            output.record(info.name, {"name": info.name, "third": 1 / 3})
    return written


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def cut_at(moment: int) -> Callable[[int], None]:
    def stop(row: int) -> None:
        if row == moment:
            raise CutError

    return stop


@pytest.fixture
def whole(tmp_path: Path) -> Callable[[int | None], dict[str, bytes]]:
    """The files of a run that was not cut short."""

    def make(limit: int | None) -> dict[str, bytes]:
        (tmp_path / "whole").mkdir()
        write(tmp_path / "whole" / "m.gguf", limit, plan=None)
        return files(tmp_path / "whole")

    return make


def kill_abruptly(patch: pytest.MonkeyPatch) -> None:
    """Let nothing run after a cut, as after a kill."""
    patch.setattr(writer.Output, "abandon", lambda self: self._file and self._file.close())
    patch.setattr(writer.Draft, "remove", lambda self: None)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("manner", ["gently", "abruptly"])
def test_a_resumed_file_is_the_one_that_was_never_cut(
    tmp_path: Path, limit: int | None, manner: str,
    whole: Callable[[int | None], dict[str, bytes]],
) -> None:  # fmt: skip
    rows = sum(info.rows for info in INFOS)
    expected = whole(limit)
    assert len(expected) == (1 if limit is None else 3)
    for moment in range(0, rows, 2):
        place = tmp_path / str(moment)
        place.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            if manner == "abruptly":
                kill_abruptly(patch)
            with pytest.raises(CutError):
                write(place / "m.gguf", limit, stop=cut_at(moment))
        assert all(name.startswith(".edgequant-") for name in files(place))
        rest = write(place / "m.gguf", limit)
        assert rest == [info.name for info in INFOS][-len(rest) :]
        assert len(rest) < len(INFOS) or moment < 15
        assert files(place) == expected


@pytest.mark.parametrize("limit", LIMITS)
def test_a_run_may_be_cut_many_times(
    tmp_path: Path, limit: int | None, whole: Callable[[int | None], dict[str, bytes]]
) -> None:
    expected = whole(limit)
    place = tmp_path / "cut"
    place.mkdir()
    for _ in range(30):
        try:
            write(place / "m.gguf", limit, stop=cut_at(12))
            break
        except CutError:
            continue
    assert files(place) == expected


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("garbage", [b"", b'12345678 {"tensor"', b"no line\n", b"\x00" * 99])
def test_a_torn_journal_counts_up_to_the_tear(
    tmp_path: Path, limit: int | None, garbage: bytes,
    whole: Callable[[int | None], dict[str, bytes]],
) -> None:  # fmt: skip
    expected = whole(limit)
    place = tmp_path / "cut"
    place.mkdir()
    with pytest.raises(CutError):
        write(place / "m.gguf", limit, stop=cut_at(40))
    (journal,) = place.glob("*.journal")
    lines = journal.read_bytes().splitlines(keepends=True)
    assert len(lines) > 3
    journal.write_bytes(b"".join(lines[:-1]) + garbage + lines[-1][:-1])
    assert len(write(place / "m.gguf", limit)) < len(INFOS)
    assert files(place) == expected


@pytest.mark.parametrize("limit", LIMITS)
def test_bytes_that_are_not_there_do_not_count(
    tmp_path: Path, limit: int | None, whole: Callable[[int | None], dict[str, bytes]]
) -> None:
    """A power cut may take bytes that were not yet on the disk, or the file's name."""
    expected = whole(limit)
    for number, keep in enumerate((0, 10, 300, 650, 100000, None)):
        place = tmp_path / str(number)
        place.mkdir()
        with pytest.raises(CutError):
            write(place / "m.gguf", limit, stop=cut_at(40))
        for path in place.glob("*.partial"):
            if keep is None:
                path.unlink()
            else:
                path.write_bytes(path.read_bytes()[:keep])
        write(place / "m.gguf", limit)
        assert files(place) == expected


@pytest.mark.parametrize("limit", LIMITS)
def test_without_resume_nothing_of_it_stays(tmp_path: Path, limit: int | None) -> None:
    path = tmp_path / "m.gguf"
    with pytest.raises(CutError):
        write(path, limit, stop=cut_at(40))
    left = files(tmp_path)
    assert len(left) > 1
    with pytest.raises(CutError):
        write(path, None, plan=None, stop=cut_at(40))
    assert files(tmp_path) == {}
    with pytest.raises(CutError):
        write(path, limit, stop=cut_at(40))
    assert files(tmp_path) == left
    assert write(path, None, plan=None) == [info.name for info in INFOS]
    assert list(files(tmp_path)) == ["m.gguf"]


def test_another_plan_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    with pytest.raises(CutError):
        write(path, None, stop=cut_at(40))
    left = files(tmp_path)
    for plan, limit, message in (
        (PLAN | {"type": "Q5_K_M"}, None, "its type was Q4_K_M and is now Q5_K_M"),
        (PLAN | {"input's size": 4}, None, "its input's size was 3 and is now 4"),
        ({"type": "Q4_K_M"}, None, "its input's size was 3 and is now None"),
        (PLAN, 1200, "its layout was [0-9a-f]{64} and is now "),
    ):
        with pytest.raises(FileError, match=f"m.gguf: cannot be resumed: {message}") as caught:
            write(path, limit, plan=plan)
        assert "without --resume" in caught.value.hint
        assert files(tmp_path) == left
    assert write(path, None) == ["t6", "t7"]


def test_an_early_end_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    with pytest.raises(CutError):
        write(path, None, stop=cut_at(0))
    assert files(tmp_path) == {}
    path.write_bytes(b"old")
    with pytest.raises(FileError, match="exists"):
        write(path, None)
    assert files(tmp_path) == {"m.gguf": b"old"}


def test_what_is_kept_survives_a_refusal(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    with pytest.raises(CutError):
        write(path, None, stop=cut_at(40))
    left = files(tmp_path)
    path.write_bytes(b"theirs")
    with pytest.raises(FileError, match="exists"):
        write(path, None)
    with pytest.raises(FileError, match="exists"):
        write(path, None, plan=None)
    assert files(tmp_path) == left | {"m.gguf": b"theirs"}
    assert len(write(path, None, force=True)) == 2


def test_the_disk_must_hold_only_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.gguf"
    with pytest.raises(CutError):
        write(path, 1200, stop=cut_at(40))
    usage = shutil.disk_usage(tmp_path)

    def nearly_full(_: Path) -> Any:
        return usage._replace(free=2000)

    monkeypatch.setattr(shutil, "disk_usage", nearly_full)
    with pytest.raises(FileError, match=r"other.gguf: needs 3,\d{3} bytes, but its disk has 2,000"):
        write(tmp_path / "other.gguf", 1200)
    left = files(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10))
    with pytest.raises(FileError, match=r"m.gguf: needs 1,\d{3} bytes, but its disk has 10 free"):
        write(path, 1200)
    assert files(tmp_path) == left
    monkeypatch.setattr(shutil, "disk_usage", nearly_full)
    assert write(path, 1200) == ["t6", "t7"]


@pytest.mark.parametrize("name", range(3))
def test_a_cut_between_two_names(
    tmp_path: Path, name: int, monkeypatch: pytest.MonkeyPatch,
    whole: Callable[[int | None], dict[str, bytes]],
) -> None:  # fmt: skip
    """All parts are whole, and some have their names: the next run gives the others theirs."""
    expected = whole(1200)
    place = tmp_path / "cut"
    place.mkdir()
    rename = Path.replace

    def stop(self: Path, target: Path) -> Path:
        if target.name == sorted(expected)[name]:
            raise CutError
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", stop)
        with pytest.raises(CutError):
            write(place / "m.gguf", 1200)
    assert [n for n in files(place) if n.startswith("m-")] == sorted(expected)[name + 1 :]
    inodes = {p.name: p.stat().st_ino for p in place.iterdir()}
    assert write(place / "m.gguf", 1200) == []
    assert files(place) == expected
    assert {p.stat().st_ino for p in place.iterdir()} < set(inodes.values())


def test_a_whole_output_needs_no_second_run(tmp_path: Path) -> None:
    """A kill after the last rename leaves the journal; the output is there, and stays."""
    path = tmp_path / "m.gguf"

    def keep(self: Path, missing_ok: bool = False) -> None: ...

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "unlink", keep)
        write(path, None)
    assert len(files(tmp_path)) == 2
    assert write(path, None) == []
    assert list(files(tmp_path)) == ["m.gguf"]
    with pytest.raises(FileError, match="exists"):
        write(path, None)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    for plan in (None, PLAN):
        with open_output(path, KEYS, INFOS, resume=plan) as output:
            for other in (None, PLAN):
                with pytest.raises(FileError, match=r"m.gguf: another process is writing it\."):
                    write(path, None, plan=other)
            assert write(tmp_path / "n.gguf", None, force=True) == [i.name for i in INFOS]
            for info in INFOS:
                output.append(info.name, rows_of(info))
        path.unlink()


@pytest.mark.skipif(sys.platform == "win32", reason="has no such lock")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_interrupt_on_the_way_to_the_lock_leaves_nothing(tmp_path: Path, moment: str) -> None:
    real, calls = draft.fcntl.flock, []

    def interrupted(descriptor: int, operation: int) -> None:
        calls.append(descriptor)
        if moment == "after" or len(calls) > 1:
            real(descriptor, operation)
        if len(calls) == 1:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draft.fcntl, "flock", interrupted)
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path / "m.gguf", None)
    assert files(tmp_path) == {}
    assert write(tmp_path / "m.gguf", None) == [i.name for i in INFOS]


@pytest.mark.parametrize("limit", LIMITS)
def test_bytes_are_on_the_disk_before_the_journal_says_so(
    tmp_path: Path, limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: dict[int, int] = {}  # by inode, the bytes that a power cut cannot take
    checked = 0

    def sync(descriptor: int) -> None:
        synced[os.fstat(descriptor).st_ino] = os.fstat(descriptor).st_size

    def add(self: Journal, tensors: Any) -> None:
        nonlocal checked
        partials = sorted(tmp_path.glob("*.partial"))
        parts = lay_out(tmp_path / "m.gguf", KEYS, INFOS, limit)
        for part, partial in zip(parts, partials, strict=False):
            for info, end in zip(part.tensors, part.ends, strict=True):
                if info.name in dict(tensors):
                    assert synced[partial.stat().st_ino] >= end
                    checked += 1

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Journal, "add", add)
    write(tmp_path / "m.gguf", limit)
    assert checked == len(INFOS)


def test_an_output_that_is_taken_away_is_missed(tmp_path: Path) -> None:
    def steal(row: int) -> None:
        if row == 50:
            for path in tmp_path.glob("*.partial"):
                path.unlink()

    with pytest.raises(FileError, match=r"m.gguf: another process took m.gguf away"):
        write(tmp_path / "m.gguf", None, stop=steal)


KILLED = """
import os, signal, sys
sys.path[:0] = {paths!r}
import test_resume
test_resume.writer.SYNC_NBYTES = 300
def stop(row):
    if row == 40:
        os.kill(os.getpid(), signal.SIGKILL)
from pathlib import Path
test_resume.write(Path(sys.argv[1]), None, stop=stop)
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_kill_9(tmp_path: Path, whole: Callable[[int | None], dict[str, bytes]]) -> None:
    expected = whole(None)
    place = tmp_path / "cut"
    place.mkdir()
    code = KILLED.format(paths=[str(Path(__file__).parent), *sys.path])
    done = subprocess.run([sys.executable, "-c", code, place / "m.gguf"], check=False)
    assert done.returncode == -9
    assert write(place / "m.gguf", None) == ["t6", "t7"]
    assert files(place) == expected


def test_the_lines_of_a_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", {"type": "Q4_K_M"})
    journal.rewrite([])
    journal.add([("a\n", {"x": 1 / 3, "worst": None}), ("b", {})])
    assert re.fullmatch(rb"([0-9a-f]{8} \{.*\}\n){3}", (tmp_path / "j").read_bytes())
    again = Journal(tmp_path / "j", {"type": "Q4_K_M"})
    assert not again.read(tmp_path / "out")
    assert again.finished == {"a\n": {"x": 1 / 3, "worst": None}, "b": {}}
    again.rewrite(["a\n"])
    again.mark_complete()
    third = Journal(tmp_path / "j", {"type": "Q4_K_M"})
    assert third.read(tmp_path / "out")
    assert list(third.finished) == ["a\n"]
