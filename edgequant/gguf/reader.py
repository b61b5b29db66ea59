"""Reading a GGUF file: mapped, its head checked, its tensors handed out as views of the mapping.

Views stay valid after `close`: the mapping goes when the last of them does.
"""

import mmap
import stat
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self, TypeVar, overload

import numpy as np

from edgequant.blocks import TensorInfo, Weight, Weights
from edgequant.errors import FileError, GGUFError, UnsupportedError
from edgequant.gguf.arrays import Array
from edgequant.gguf.cursor import CUT_SHORT, DAMAGED
from edgequant.gguf.foreign import HEAD_BYTES, recognise
from edgequant.gguf.head import read_head
from edgequant.gguf.spec import MAGIC, KeyValue

T = TypeVar("T")
_REQUIRED = object()


class GGUFFile:
    """An open GGUF file; a context manager.

    Attributes:
        path: as it was given.
        nbytes: the file's length.
        version: 2 or 3.
        alignment: of the tensors' offsets, in bytes.
        keys: in file order; arrays decode when asked for items.
        tensors: in file order, shapes as (rows, columns).
    """

    def __init__(self, path: Path, view: memoryview) -> None:
        head = read_head(path, view)
        self.path = path
        self.nbytes = len(view)
        self.version = head.version
        self.alignment = head.alignment
        self.keys: Mapping[str, KeyValue] = MappingProxyType(head.keys)
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(head.tensors)
        self._starts = head.starts
        self._view = view

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the mapping; views handed out before stay valid and keep it until they go."""
        # mmap.close would raise BufferError while a view lives; dropping our references cannot.
        self._view = memoryview(b"")

    def weights(self) -> Weights:
        """Return all tensors with their bytes: read-only views of the mapping, nothing copied.

        Raises:
            UnsupportedError: the file holds only a part of a model.
            ValueError: it was closed (a bug of the caller).
        """
        if not self._view:
            raise ValueError(f"{self.path}: closed")
        parts = self.value("split.count", int, 1)
        if parts > 1:
            raise UnsupportedError(
                f"{self.path}: is one of {parts:,} parts of a model.",
                hint="join them first, with llama.cpp's llama-gguf-split --merge.",
            )
        found = {}
        for name, info in self.tensors.items():
            view = np.frombuffer(self._view, np.uint8, info.nbytes, self._starts[name])
            found[name] = Weight(info, view.reshape(info.rows, -1))
        return Weights(self.path, self._view, found)

    def values(self) -> dict[str, object]:
        """Return all keys as plain values: int, float, bool, str, or a list of them."""
        return {key: _plain(entry) for key, entry in self.keys.items()}

    @overload
    def value(self, key: str, kind: type[T]) -> T: ...
    @overload
    def value(self, key: str, kind: type[T], default: T) -> T: ...
    def value(self, key: str, kind: type[T], default: object = _REQUIRED) -> object:
        """Return one key's plain value.

        Args:
            key: its name.
            kind: int, float (also takes an int), bool, str or list.
            default: what to return if the key is absent.

        Raises:
            GGUFError: absent without a default, or of another kind.
        """
        entry = self.keys.get(key)
        if entry is None:
            if default is not _REQUIRED:
                return default
            raise GGUFError(
                f"{self.path}: has no key {key!r}.",
                hint="use a model file made by edgequant convert or by llama.cpp.",
            )
        value = _plain(entry)
        if kind is float and type(value) is int:
            return float(value)
        if type(value) is not kind:
            raise GGUFError(
                f"{self.path}: key {key!r} is a {type(value).__name__}, not a {kind.__name__}.",
                hint=DAMAGED,
            )
        return value


def open_file(path: Path) -> GGUFFile:
    """Open a GGUF file and check all of its head; tensors' bytes are not read.

    Raises:
        FileError: it is missing, unreadable, or not a plain file.
        GGUFError: it is not GGUF, or its head does not fit the file.
    """
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise FileError(
                f"{path}: is a directory, not a GGUF file.",
                hint="name a .gguf file in it, or make one of a checkpoint with edgequant convert.",
            )
        if not stat.S_ISREG(mode):
            raise FileError(f"{path}: is not a plain file.", hint="copy it to a file first.")
        with path.open("rb") as file:
            _check_magic(path, file.read(HEAD_BYTES), path.stat().st_size)
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError as error:
        raise FileError(f"{path}: no such file.", hint="check the path.") from error
    except OSError as error:
        raise FileError(
            f"{path}: cannot be read: {error.strerror}.",
            hint="check the file's permissions, and that its disk is there.",
        ) from error
    return GGUFFile(path, memoryview(mapping))


def _plain(entry: KeyValue) -> object:
    return entry.value.items if isinstance(entry.value, Array) else entry.value


def _check_magic(path: Path, head: bytes, size: int) -> None:
    if size == 0:
        raise GGUFError(f"{path}: is empty.", hint=CUT_SHORT)
    if not head.startswith(MAGIC):
        kind = recognise(head, size)
        raise GGUFError(f"{path}: is not GGUF, but {kind.what}.", hint=kind.hint)
