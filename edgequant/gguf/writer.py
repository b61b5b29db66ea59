"""Writing a GGUF file: the layout first, then the tensors' bytes in order, all or nothing.

The bytes go to a file of another name in the same directory, which takes its final name only when
it is whole and on the disk. It knows bytes, and not what the tensors are for.
"""

import os
import secrets
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

import numpy as np

from edgequant.blocks import Bytes, TensorInfo
from edgequant.errors import GGUFError
from edgequant.gguf.arrays import Array
from edgequant.gguf.destination import blamed_on, check_output, check_space, sync_directory
from edgequant.gguf.head import check_alignment
from edgequant.gguf.spec import (
    MAGIC,
    MAX_DIMENSIONS,
    MAX_NAME_BYTES,
    NUMBERS,
    VERSIONS,
    KeyValue,
    ValueType,
    typed,
)


class Output:
    """A GGUF file being written; made by `open_output`."""

    def __init__(
        self, path: Path, file: FileIO, tensors: Sequence[TensorInfo], alignment: int
    ) -> None:
        self._path = path
        self._file = file
        self._waiting = iter(tensors)
        self._alignment = alignment
        self._tensor: TensorInfo | None = None
        self._left = 0

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
            self._tensor = next(self._waiting, None)
            self._left = self._tensor.nbytes if self._tensor else 0
        if self._tensor is None or name != self._tensor.name or rows.nbytes > self._left:
            turn = f"{self._tensor.name} with {self._left:,}" if self._tensor else "none"
            raise ValueError(f"{name}: {rows.nbytes:,} bytes, but next is {turn}")
        self.write(np.ascontiguousarray(rows).reshape(-1).data)
        self._left -= rows.nbytes
        if self._left == 0:
            self.write(bytes(-self._tensor.nbytes % self._alignment))

    def write(self, data: bytes | memoryview) -> None:
        """Write bytes that belong to no tensor: the head, padding."""
        rest = memoryview(data)
        with blamed_on(self._path):
            while rest:
                rest = rest[self._file.write(rest) :]

    def finish(self) -> None:
        """Check that every tensor is complete, and see the bytes onto the disk.

        Raises:
            ValueError: one is not (a bug of the caller).
            FileError: the disk does not take them.
        """
        missing = self._tensor if self._left else next(self._waiting, None)
        if missing is not None:
            raise ValueError(f"{missing.name}: not complete")
        with blamed_on(self._path):
            os.fsync(self._file.fileno())


@contextmanager
def open_output(
    path: Path,
    keys: Mapping[str, object],
    tensors: Sequence[TensorInfo],
    *,
    force: bool = False,
    inputs: Sequence[Path] = (),
) -> Iterator[Output]:
    """Write a GGUF file; it appears under its name when the block ends well, and never otherwise.

    Args:
        path: where; a symbolic link is followed.
        keys: plain values, typed as `typed` does, or `KeyValue`s, written in this order.
        tensors: all of them, in the order in which their bytes will come.
        force: replace an existing file.
        inputs: files that are being read, which the output must not replace.

    Raises:
        FileError: it exists, is an input, cannot be written, or its disk is too small.
        GGUFError: a tensor or key that the format, or llama.cpp, cannot hold.
    """
    target = Path(os.path.realpath(path))
    check_output(path, force=force, inputs=inputs)
    entries = {key: typed(value) for key, value in keys.items()}
    alignment = check_alignment(path, entries)
    head = _encode_head(path, entries, tensors, alignment)
    total = len(head) + sum(_padded(info.nbytes, alignment) for info in tensors)
    check_space(path, target.parent, total)
    # The name says who left it, should the process be killed; it is short, whatever the output's.
    partial = target.with_name(f".edgequant-{secrets.token_hex(8)}.partial")
    try:
        with blamed_on(path):
            file = partial.open("xb", buffering=0)
        with file:
            output = Output(path, file, tensors, alignment)
            output.write(head)
            yield output
            output.finish()
        check_output(path, force=force, inputs=inputs)
        with blamed_on(path):
            partial.replace(target)
        sync_directory(target.parent)
    finally:
        partial.unlink(missing_ok=True)


def _padded(nbytes: int, alignment: int) -> int:
    return -(-nbytes // alignment) * alignment


def _encode_head(
    path: Path, keys: Mapping[str, KeyValue], tensors: Sequence[TensorInfo], alignment: int
) -> bytes:
    head = bytearray(MAGIC)
    head += struct.pack("<IQQ", max(VERSIONS), len(tensors), len(keys))
    for key, entry in keys.items():
        try:
            head += _encode_string(key) + struct.pack("<I", entry.type) + _encode_value(entry)
        except UnicodeEncodeError as error:
            raise GGUFError(
                f"{path}: key {key!r} would hold text that is not Unicode: character "
                f"{error.object[error.start]!a} at position {error.start:,}.",
                hint="correct that text in the source.",
            ) from error
    seen: set[str] = set()
    offset = 0
    for info in tensors:
        _check_tensor(path, info, seen)
        seen.add(info.name)
        shape = info.shape[::-1]  # on disk the contiguous axis comes first
        head += _encode_string(info.name)
        head += struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        head += struct.pack("<IQ", info.type.ggml_id, offset)
        offset += _padded(info.nbytes, alignment)
    head += bytes(-len(head) % alignment)
    return bytes(head)


def _check_tensor(path: Path, info: TensorInfo, seen: set[str]) -> None:
    if info.name in seen:
        raise GGUFError(
            f"{path}: would hold tensor {info.name!r} twice.",
            hint="remove one of the two from the source.",
        )
    length = len(info.name.encode("utf-8", "backslashreplace"))
    if length > MAX_NAME_BYTES:
        raise GGUFError(
            f"{path}: tensor name {info.name!r} has {length} bytes; llama.cpp reads at most "
            f"{MAX_NAME_BYTES}.",
            hint="shorten the name in the source.",
        )
    if len(info.shape) > MAX_DIMENSIONS or 0 in info.shape:
        raise GGUFError(
            f"{path}: tensor {info.name!r} has shape {info.shape}; GGUF holds 1 to "
            f"{MAX_DIMENSIONS} dimensions, none of them 0.",
            hint="leave this tensor out, or reshape it in the source.",
        )


def _encode_value(entry: KeyValue) -> bytes:
    if entry.type is ValueType.STRING:
        return _encode_string(str(entry.value))
    if entry.type is not ValueType.ARRAY:
        return np.array(entry.value, NUMBERS[entry.type]).tobytes()
    values = entry.value
    if not isinstance(values, Sequence) or entry.item is None:
        raise TypeError(f"an array needs a sequence and an item type, not {values!r}")
    head = struct.pack("<IQ", entry.item, len(values))
    if isinstance(values, Array):
        return head + bytes(values.encoded)
    if entry.item is ValueType.STRING:
        return head + b"".join(_encode_string(value, "surrogateescape") for value in values)
    return head + np.array(values, NUMBERS[entry.item]).tobytes()


def _encode_string(text: str, errors: str = "strict") -> bytes:
    # "surrogateescape", in arrays alone, gives back the odd bytes that arrays.Array reads.
    encoded = text.encode("utf-8", errors)
    return struct.pack("<Q", len(encoded)) + encoded
