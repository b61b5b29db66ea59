"""What a run that was killed had finished, so that the next one can go on.

A line a tensor, appended after the tensor's bytes were seen onto the disk, and before them a line
with the plan: the run that goes on must be doing the same. Every line begins with its CRC-32, so
that one cut short by a kill or a power cut is told from a whole one; it and what follows do not
count.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from zlib import crc32

from edgequant.errors import FileError

Facts = Mapping[str, object]  # what JSON can hold


class Journal:
    """The journal of one output, which may not have begun.

    Attributes:
        finished: what was said of each finished tensor, by name, in order.
    """

    def __init__(self, path: Path, plan: Facts) -> None:
        self.path = path
        self.plan = dict(plan)
        self.finished: dict[str, Facts] = {}

    def read(self, where: Path) -> bool:
        """Read what an earlier run left, if it did.

        Args:
            where: the output, for messages.

        Returns:
            Whether all was written, and only the final names were to be given.

        Raises:
            FileError: its plan was another.
        """
        lines = _whole_lines(self.path)
        if not lines:
            return False
        _compare(where, lines[0], self.plan)
        for line in lines[1:]:
            if "complete" in line:
                return True
            self.finished[str(line["tensor"])] = _facts(line["facts"])
        return False

    def rewrite(self, names: Sequence[str]) -> None:
        """Start the file with the plan and those of the finished tensors that still count."""
        self.finished = {name: self.finished[name] for name in names}
        lines = [self.plan, *map(_line_of, self.finished.items())]
        beside = self.path.with_name(self.path.name + ".new")
        _write(beside, lines, "wb")
        beside.replace(self.path)

    def add(self, tensors: Sequence[tuple[str, Facts]]) -> None:
        """Note tensors, whose bytes must be on the disk."""
        self.finished.update(tensors)
        _write(self.path, list(map(_line_of, tensors)), "ab")

    def mark_complete(self) -> None:
        """Note that all files are whole and on the disk."""
        _write(self.path, [{"complete": True}], "ab")


def _line_of(tensor: tuple[str, Facts]) -> Facts:
    return {"tensor": tensor[0], "facts": tensor[1]}


def _facts(value: object) -> Facts:
    return value if isinstance(value, dict) else {}


def _write(path: Path, lines: Sequence[Facts], mode: str) -> None:
    encoded = [json.dumps(line).encode() for line in lines]
    with path.open(mode) as file:
        file.write(b"".join(b"%08x %b\n" % (crc32(line), line) for line in encoded))
        file.flush()
        os.fsync(file.fileno())


def _whole_lines(path: Path) -> list[dict[str, object]]:
    lines: list[dict[str, object]] = []
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return lines
    for line in content.splitlines(keepends=True):
        if not line.endswith(b"\n") or line[:9] != b"%08x " % crc32(line[9:-1]):
            break
        lines.append(json.loads(line[9:-1]))
    return lines


def _compare(where: Path, before: Facts, now: Facts) -> None:
    for key in sorted(before.keys() | now.keys()):
        if before.get(key) != now.get(key):
            raise FileError(
                f"{where}: cannot be resumed: its {key} was {before.get(key)} and is now "
                f"{now.get(key)}.",
                hint="repeat the command that was interrupted, or start over without --resume.",
            )
