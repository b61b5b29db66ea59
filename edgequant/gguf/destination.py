"""Where a file is to be written: what can be wrong with a path, and whose fault that is.

It knows files, directories and disks, and nothing of what is written.
"""

import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from edgequant.errors import FileError


def check_output(path: Path, *, force: bool = False, inputs: Sequence[Path] = ()) -> None:
    """Check what `open_output` will check of `path`, for stages with long work before that.

    Raises:
        FileError: it exists, is an input, or cannot be written.
    """
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileError(
            f"{path}: its directory {str(target.parent)!r} does not exist.",
            hint="create the directory first, or write elsewhere.",
        )
    if not os.access(target.parent, os.W_OK):
        raise FileError(
            f"{path}: its directory {str(target.parent)!r} may not be written to.",
            hint="check the directory's permissions, or write elsewhere.",
        )
    with blamed_on(path):
        present = target.exists()
    if not present:
        return
    if target.is_dir():
        raise FileError(f"{path}: is a directory.", hint="name a file in it.")
    if not target.is_file():
        raise FileError(f"{path}: is not a plain file.", hint="name a file on a disk.")
    for source in inputs:
        if source.exists() and target.samefile(source):
            raise FileError(
                f"{path}: is the input {str(source)!r} itself.", hint="choose another output name."
            )
    if not force:
        raise FileError(f"{path}: exists.", hint="choose another name, or pass --force.")


def check_space(path: Path, directory: Path, total: int) -> None:
    """Check that the disk of a directory has room for so many bytes.

    Raises:
        FileError: it has not, with both numbers.
    """
    disk = shutil.disk_usage(directory)
    if disk.total and disk.free < total:  # some network disks say 0 of 0
        raise FileError(
            f"{path}: needs {total:,} bytes, but its disk has {disk.free:,} free.",
            hint="free some space, or write to another disk.",
        )


@contextmanager
def blamed_on(path: Path) -> Iterator[None]:
    """Turn what the system refuses in this block into a FileError about the output."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise FileError(
                f"{path}: its disk or quota is full.",
                hint="free some space, or write to another disk.",
            ) from error
        raise FileError(
            f"{path}: cannot be written: {error.strerror}.",
            hint="check the directory's permissions, or write elsewhere.",
        ) from error


def sync_directory(directory: Path) -> None:
    """See the new name onto the disk, where there is a call for it.

    Windows has none, and some network disks refuse it; the file is whole all the same.
    """
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
