"""Reading a GGUF file: mapped, its head checked, its tensors handed out as views of the mapping.

A model in several files is read as if it were one. Views stay valid after `close`: a mapping goes
when the last of them does.
"""

import mmap
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self, TypeVar, overload

import numpy as np

from edgequant.blocks import Place, TensorInfo, Weight, Weights
from edgequant.errors import FileError, GGUFError
from edgequant.gguf.arrays import Array
from edgequant.gguf.cursor import CUT_SHORT, DAMAGED
from edgequant.gguf.foreign import HEAD_BYTES, recognise
from edgequant.gguf.head import Head, read_head
from edgequant.gguf.parts import check_parts, other_parts, without_part_keys
from edgequant.gguf.spec import MAGIC, KeyValue

T = TypeVar("T")
_REQUIRED = object()


@dataclass(frozen=True)
class MappedPart:
    """A file of a model, the whole of it mapped, and its head."""

    path: Path
    view: memoryview
    head: Head


class GGUFFile:
    """An open GGUF file, or all parts of one; a context manager.

    Attributes:
        path: as it was given; of several parts, the first.
        paths: of all parts, in order.
        nbytes: the length of all of them.
        version: 2 or 3, as the first says.
        alignment: of the tensors' offsets, in bytes, as the first says.
        keys: of the first, in file order, without those that speak of parts; arrays decode when
            asked for items.
        tensors: of all parts, in file order, shapes as (rows, columns).
    """

    def __init__(self, parts: Sequence[MappedPart]) -> None:
        first = parts[0]
        self.path = first.path
        self.paths = tuple(part.path for part in parts)
        self.nbytes = sum(len(part.view) for part in parts)
        self.version = first.head.version
        self.alignment = first.head.alignment
        self.keys: Mapping[str, KeyValue] = MappingProxyType(without_part_keys(first.head.keys))
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(
            {name: info for part in parts for name, info in part.head.tensors.items()}
        )
        self._parts = tuple(parts)

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
        """Let go of the mappings; views handed out before stay valid, and keep theirs."""
        # mmap.close would raise BufferError while a view lives; dropping our references cannot.
        self._parts = ()

    def weights(self) -> Weights:
        """Return all tensors with their bytes: read-only views of the mappings, nothing copied.

        Raises:
            ValueError: it was closed (a bug of the caller).
        """
        if not self._parts:
            raise ValueError(f"{self.path}: closed")
        found = {}
        for part in self._parts:
            for name, info in part.head.tensors.items():
                start = part.head.starts[name]
                view = np.frombuffer(part.view, np.uint8, info.nbytes, start)
                found[name] = Weight(info, view.reshape(info.rows, -1), Place(part.path, start))
        return Weights(self.path, tuple(part.view for part in self._parts), found)

    def values(self) -> Mapping[str, object]:
        """Return all keys as plain values: int, float, bool, str, or a list of them.

        Arrays decode when they are asked for.
        """
        return _PlainValues(self.keys)

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

    Args:
        path: a file by itself, or the first of a model's parts, whose others lie beside it.

    Raises:
        FileError: it or a part is missing, unreadable, or not a plain file.
        GGUFError: it is not GGUF, its head does not fit the file, or the parts not each other.
    """
    first = _map(path)
    others = other_parts(path, first.head)
    if not others:
        return GGUFFile([first])
    parts = [first, *map(_map, others)]
    check_parts([(part.path, part.head) for part in parts])
    return GGUFFile(parts)


def _map(path: Path) -> MappedPart:
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
    view = memoryview(mapping)
    return MappedPart(path, view, read_head(path, view))


class _PlainValues(Mapping[str, object]):
    """Keys with plain values, decoded on demand: a vocabulary takes longer than all else."""

    def __init__(self, keys: Mapping[str, KeyValue]) -> None:
        self._keys = keys

    def __getitem__(self, key: str) -> object:
        return _plain(self._keys[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def _plain(entry: KeyValue) -> object:
    return entry.value.items if isinstance(entry.value, Array) else entry.value


def _check_magic(path: Path, head: bytes, size: int) -> None:
    if size == 0:
        raise GGUFError(f"{path}: is empty.", hint=CUT_SHORT)
    if not head.startswith(MAGIC):
        kind = recognise(head, size)
        raise GGUFError(f"{path}: is not GGUF, but {kind.what}.", hint=kind.hint)
