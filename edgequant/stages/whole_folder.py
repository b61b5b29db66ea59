"""A folder that appears whole or not at all.

Its files are written into a folder of another name beside it, which takes its name when all is on
the disk. It knows files and disks, and nothing of what they hold.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from edgequant.errors import FileError
from edgequant.gguf.destination import blamed_on, check_space, sync_directory
from edgequant.progress import Progress

PIECE = 8 << 20  # bytes that are copied between two reports


def check_folder(path: Path, mark: str, *, force: bool, inputs: Sequence[Path]) -> None:
    """Check that a folder can be written, or replaced.

    Args:
        path: of the folder.
        mark: a file that is in every such folder: none without it is replaced.
        force: replace it.
        inputs: files that are being read, which must not be in it.

    Raises:
        FileError: it is there, is something else, holds an input, or cannot be made.
    """
    parent = Path(os.path.realpath(path)).parent
    if not parent.is_dir():
        raise FileError(
            f"{path}: its directory {str(parent)!r} does not exist.",
            hint="create the directory first, or write elsewhere.",
        )
    with blamed_on(path):
        present = path.exists() or path.is_symlink()
        empty = path.is_dir() and not any(path.iterdir())
    if not present or empty:
        return
    if path.is_symlink() or not (path / mark).is_file():
        raise FileError(
            f"{path}: exists, and is not a folder with a {mark}, as this command makes them.",
            hint="choose another name, or remove it yourself.",
        )
    for file in inputs:
        if path.resolve() in file.resolve().parents:
            raise FileError(
                f"{path}: holds the input {str(file)!r}.", hint="choose another output."
            )
    if not force:
        raise FileError(f"{path}: exists.", hint="choose another name, or pass --force.")


@contextmanager
def whole_folder(path: Path, nbytes: int) -> Iterator[Path]:
    """Yield a folder to write into, which becomes `path` if the block ends well, else is removed.

    What `path` was before is replaced; `check_folder` says whether it may be.

    Args:
        path: of the folder.
        nbytes: that will be written.

    Raises:
        FileError: the disk is too small, or does not take what is written.
    """
    parent = Path(os.path.realpath(path)).parent
    check_space(path, parent, nbytes)
    with blamed_on(path):
        draft = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=parent))
    try:
        with blamed_on(path):
            yield draft
            draft.chmod(0o777 & ~_mask())
            sync_directory(draft)
            _publish(draft, path)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    sync_directory(parent)


def write_file(path: Path, content: bytes) -> None:
    """Write a file, and see it onto the disk."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def copy_file(source: Path, target: Path, progress: Progress) -> None:
    """Copy a file, and see it onto the disk; `progress` is told of bytes as they are written."""
    with source.open("rb") as reading, target.open("wb") as writing:
        while piece := reading.read(PIECE):
            writing.write(piece)
            progress.advance(len(piece), target.name)
        writing.flush()
        os.fsync(writing.fileno())


def link_file(source: Path, target: Path) -> None:
    """Give a file a second name.

    Raises:
        FileError: it is on another disk, or its disk knows no second names.
    """
    try:
        os.link(os.path.realpath(source), target)
    except OSError as error:
        raise FileError(
            f"{source}: cannot have a second name in {str(target.parent.parent)!r}: "
            f"{error.strerror}.",
            hint="leave out --link, so that the model is copied.",
        ) from error


def _publish(draft: Path, path: Path) -> None:
    """Give the draft its name, after what has it now was moved out of the way."""
    if not path.exists():
        draft.rename(path)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{path.name}.old.", dir=draft.parent))
    path.rename(old / path.name)
    try:
        draft.rename(path)
    except BaseException:
        (old / path.name).rename(path)
        old.rmdir()
        raise
    shutil.rmtree(old, ignore_errors=True)


def _mask() -> int:
    """Return which permissions this process withholds; the only way to read it is to set it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
