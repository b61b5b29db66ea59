"""The files of an output while it is unfinished: their names, who holds them, and their end.

They lie beside the output, under names that depend on its name alone, so that a later run finds
what a killed one left. One process at a time holds them, by a lock that the system lets go of if
the process dies. Windows has no such lock: there, two runs of the same output spoil each other's.
"""

import errno
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from edgequant.errors import FileError
from edgequant.gguf.destination import blamed_on, sync_directory
from edgequant.gguf.layout import Part

if sys.platform != "win32":
    import fcntl

_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)  # of some network disks


class Draft:
    """The unfinished files of one output.

    Attributes:
        partials: the names of the parts until they are whole, in order.
        journal: the name of the journal.
    """

    def __init__(self, path: Path, parts: Sequence[Part]) -> None:
        self._path = path
        self._parts = tuple(parts)
        self._targets = [Path(os.path.realpath(part.path)) for part in parts]
        name = Path(os.path.realpath(path)).name
        # Short, whatever the output's name, and whoever finds one can tell who left it.
        self._stem = f".edgequant-{sha256(os.fsencode(name)).hexdigest()[:16]}"
        self.partials = tuple(
            target.with_name(f"{self._stem}-{number}.partial")
            for number, target in enumerate(self._targets)
        )
        self.journal = self._targets[0].with_name(f"{self._stem}.journal")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes from the files while the block runs.

        Raises:
            FileError: another process has them, or they cannot be made.
        """
        if sys.platform == "win32":
            yield
            return
        first = self.partials[0]
        lock = None
        try:
            with blamed_on(self._path):
                lock = _lock(first, self._path)
            yield
        finally:
            if lock is None:  # refused, or interrupted on the way to the lock
                _drop_unheld(first)
            else:
                _drop_empty(lock, first)
                os.close(lock)

    def clear(self) -> None:
        """Empty what an earlier run left, and give its space back."""
        for path in self._left():
            if path == self.partials[0]:  # the lock is on it
                os.truncate(path, 0)
            else:
                path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Leave nothing."""
        for path in self._left():
            path.unlink(missing_ok=True)

    def _left(self) -> list[Path]:
        """Return what is there, also of a run that made another number of parts."""
        directories = {target.parent for target in self._targets}
        return [path for place in directories for path in place.glob(f"{self._stem}*")]

    def salvage(self, finished: int) -> tuple[int, list[int]]:
        """Say how much of an earlier run's work counts.

        Args:
            finished: how many tensors, in order, its journal says are on the disk.

        Returns:
            How many are, and the bytes of each part that hold them and what precedes them.
        """
        kept = [0] * len(self._parts)
        count = 0
        for number, part in enumerate(self._parts):
            size = _size(self.partials[number])
            if count == finished or size < len(part.head):
                break
            kept[number] = len(part.head)
            for end in part.ends:
                if count == finished or size < end:
                    return count, kept
                count, kept[number] = count + 1, end
        return count, kept

    def is_whole(self) -> bool:
        """Tell whether every part is, under either name."""
        return all(
            part.nbytes in (_size(partial), _size(target))
            for part, partial, target in self._files()
        )

    def publish(self) -> None:
        """Give whole parts their final names, the first last: a set is opened by it.

        An old set's first part goes before the others are replaced, so that it never opens parts
        of two. A kill in between leaves parts without a first one, which do not open.
        """
        waiting = [
            (partial, target)
            for part, partial, target in self._files()
            if _size(partial) == part.nbytes
        ]
        if len(waiting) > 1:
            self._targets[0].unlink(missing_ok=True)
        for partial, target in reversed(waiting):
            partial.replace(target)
        for part, _, target in self._files():
            if _size(target) != part.nbytes:
                raise FileError(
                    f"{self._path}: another process took {target.name} away before it was whole.",
                    hint="let one process at a time write there.",
                )
        for directory in {target.parent for target in self._targets}:
            sync_directory(directory)

    def _files(self) -> Iterator[tuple[Part, Path, Path]]:
        return zip(self._parts, self.partials, self._targets, strict=True)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return -1


def _lock(path: Path, output: Path) -> int:
    """Return an open descriptor of the file, made if need be, that holds its lock."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _hold(descriptor)
            if _is_open(descriptor, path):
                return descriptor
        except BlockingIOError as error:
            os.close(descriptor)
            raise FileError(
                f"{output}: another process is writing it.",
                hint="wait for that one, or choose another output name.",
            ) from error
        except BaseException:  # an interrupt, too, must not keep the lock
            os.close(descriptor)
            raise
        os.close(descriptor)  # whoever held the lock until now renamed or removed that file


def _hold(descriptor: int) -> None:
    """Take the lock at once, or raise BlockingIOError; some disks have none to take."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def _drop_empty(lock: int, path: Path) -> None:
    """Remove a file that was made for its lock alone, which the caller holds."""
    if _is_open(lock, path) and _size(path) == 0:
        path.unlink()


def _drop_unheld(path: Path) -> None:
    """Remove what an interrupt left between making the file and holding it; nobody else's."""
    with suppress(OSError):  # gone, or held by another process
        descriptor = os.open(path, os.O_RDWR)
        try:
            _hold(descriptor)
            _drop_empty(descriptor, path)
        finally:
            os.close(descriptor)


def _is_open(descriptor: int, path: Path) -> bool:
    """Tell whether a descriptor is of the file that has a name now."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
