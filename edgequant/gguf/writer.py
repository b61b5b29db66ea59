"""Writing a GGUF file: the layout first, then the tensors' bytes in order, all or nothing.

The bytes go to files of other names in the same directory, which take their final names only when
all are whole and on the disk. It knows bytes, and not what the tensors are for.
"""

import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

import numpy as np

from edgequant.blocks import Bytes, TensorInfo
from edgequant.errors import FileError
from edgequant.gguf.destination import blamed_on, check_output, check_space
from edgequant.gguf.draft import Draft
from edgequant.gguf.journal import Facts, Journal
from edgequant.gguf.layout import Part, digest, lay_out

SYNC_NBYTES = 1 << 24  # between entries of a journal: what a kill may cost, beside one tensor


class Output:
    """A GGUF file being written, or a set of them; made by `open_output`.

    Attributes:
        paths: the final names of its files.
        finished: what was recorded of each tensor that an earlier run finished, by name; the bytes
            of these must not come again.
    """

    def __init__(
        self,
        path: Path,
        parts: Sequence[Part],
        partials: Sequence[Path],
        kept: Sequence[int],
        journal: Journal | None = None,
    ) -> None:
        """Take over the partial files, of which the first `kept` bytes each stay."""
        self.paths = tuple(part.path for part in parts)
        self.finished: Mapping[str, Facts] = {} if journal is None else dict(journal.finished)
        self._path = path
        self._journal = journal
        self._parts = deque(zip(parts, partials, kept, strict=True))
        self._waiting = deque(
            (part, info)
            for part in parts
            for info in part.tensors
            if info.name not in self.finished
        )
        self._part: Part | None = None
        self._file: FileIO | None = None
        self._tensor: TensorInfo | None = None
        self._left = 0
        self._unsynced = 0
        self._records: list[tuple[str, Facts]] = []

    def append(self, name: str, rows: Bytes) -> None:
        """Add rows of a tensor, or any run of its bytes.

        Args:
            name: the tensor that is not yet complete, or, if none is, the next.
            rows: (rows, row bytes) uint8.

        Raises:
            ValueError: another tensor's turn, or more bytes than it has (a bug of the caller).
            FileError: they cannot be written.
        """
        if self._left == 0:
            self._begin_tensor()
        if self._tensor is None or name != self._tensor.name or rows.nbytes > self._left:
            turn = f"{self._tensor.name} with {self._left:,}" if self._tensor else "none"
            raise ValueError(f"{name}: {rows.nbytes:,} bytes, but next is {turn}")
        self._write(np.ascontiguousarray(rows).reshape(-1).data)
        self._left -= rows.nbytes
        if self._left == 0 and self._part is not None:
            self._write(bytes(-self._tensor.nbytes % self._part.alignment))

    def record(self, name: str, facts: Facts) -> None:
        """Keep, for a run that resumes this one, what is known of a tensor.

        Args:
            name: the tensor, whose last bytes have just been appended.
            facts: what JSON can hold.
        """
        if self._journal is None:
            return
        self._records.append((name, facts))
        if self._unsynced >= SYNC_NBYTES:
            self._sync()

    def finish(self) -> None:
        """Check that every tensor is complete, and see the bytes onto the disk.

        Raises:
            ValueError: one is not (a bug of the caller).
            FileError: the disk does not take them.
        """
        missing = self._tensor if self._left else self._waiting[0][1] if self._waiting else None
        if missing is not None:
            raise ValueError(f"{missing.name}: not complete")
        while self._parts:
            self._begin_part()
        self._end_part()

    def abandon(self) -> None:
        """Let go of the file that is open; what is recorded is kept if it can be."""
        if self._file is not None:
            with self._file, suppress(FileError):
                if self._records:
                    self._sync()

    def _sync(self) -> None:
        """See bytes onto the disk, and only then the records of the tensors they make whole."""
        with blamed_on(self._path):
            if self._file is not None:
                os.fsync(self._file.fileno())
            if self._journal is not None and self._records:
                self._journal.add(self._records)
        self._records = []
        self._unsynced = 0

    def _begin_tensor(self) -> None:
        if not self._waiting:
            self._tensor = None
            return
        part, self._tensor = self._waiting.popleft()
        self._left = self._tensor.nbytes
        while self._part is not part:
            self._begin_part()

    def _begin_part(self) -> None:
        self._end_part()
        self._part, partial, kept = self._parts.popleft()
        if kept == self._part.nbytes:
            return
        with blamed_on(self._path):
            self._file = partial.open("ab", buffering=0)
            if self._file.tell() != kept:
                self._file.truncate(kept)
        if kept == 0:
            self._write(self._part.head)

    def _end_part(self) -> None:
        if self._file is not None:
            try:
                self._sync()
            finally:
                self._file.close()
                self._file = None

    def _write(self, data: bytes | memoryview) -> None:
        if self._file is None:
            raise ValueError(f"{self._path}: no file is open")
        rest = memoryview(data)
        self._unsynced += len(rest)
        with blamed_on(self._path):
            while rest:
                rest = rest[self._file.write(rest) :]


@contextmanager
def open_output(
    path: Path,
    keys: Mapping[str, object],
    tensors: Sequence[TensorInfo],
    *,
    force: bool = False,
    inputs: Sequence[Path] = (),
    part_nbytes: int | None = None,
    resume: Facts | None = None,
) -> Iterator[Output]:
    """Write a GGUF file; it appears under its name when the block ends well, and never otherwise.

    Args:
        path: where; a symbolic link is followed.
        keys: plain values, typed as `typed` does, or `KeyValue`s, written in this order.
        tensors: all of them, in the order in which their bytes will come.
        force: replace an existing file.
        inputs: files that are being read, which the output must not replace.
        part_nbytes: write files of at most so many bytes, named after `path` as `parts` says. They
            get their names one after the other, the first last; a kill in that moment leaves some
            of the later ones, which do not open without it.
        resume: what decides the bytes beside keys and tensors, by name. What is finished is then
            kept if the block or the process ends badly, and a later call with the same goes on
            from there. None keeps nothing, and throws away what was kept.

    Raises:
        FileError: it exists, is an input, is being written, or cannot be; its disk is too small; or
            what was kept is of another plan.
        GGUFError: a tensor or key that the format, or llama.cpp, cannot hold.
    """
    parts = lay_out(path, keys, tensors, part_nbytes)
    for part in parts:
        check_output(part.path, force=True, inputs=inputs)
    draft = Draft(path, parts)
    journal = None
    if resume is not None:
        journal = Journal(draft.journal, {**resume, "layout": digest(parts)})
    with draft.held():
        with blamed_on(path):
            named = journal is not None and journal.read(path) and draft.is_whole()
            if not named:
                _check_outputs(parts, force, inputs)
            kept = [p.nbytes for p in parts] if named else _begin(path, parts, draft, journal)
        output = Output(path, parts, draft.partials, kept, journal)
        try:
            yield output
            output.finish()
            with blamed_on(path):
                if not named:
                    _check_outputs(parts, force, inputs)
                    if journal is not None:
                        journal.mark_complete()
                draft.publish()
        except BaseException:
            output.abandon()
            if journal is None or not journal.finished:
                draft.remove()
            raise
        draft.remove()


def _check_outputs(parts: Sequence[Part], force: bool, inputs: Sequence[Path]) -> None:
    for part in parts:
        check_output(part.path, force=force, inputs=inputs)


def _begin(path: Path, parts: Sequence[Part], draft: Draft, journal: Journal | None) -> list[int]:
    """Keep what counts of an earlier run, and see that there is room for the rest.

    Returns:
        The bytes kept of each part.
    """
    count, kept = 0, [0] * len(parts)
    if journal is not None:
        count, kept = draft.salvage(len(journal.finished))
    if count == 0:
        kept = [0] * len(parts)
        draft.clear()
    check_space(path, draft.journal.parent, sum(part.nbytes for part in parts) - sum(kept))
    if journal is not None:
        journal.rewrite(list(journal.finished)[:count])
    return kept
