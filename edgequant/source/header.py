"""The header of a safetensors shard, checked in full before any byte of a tensor is read.

A shard is 8 bytes of header length, a JSON header, and the tensors' bytes. Whatever the header
claims is held against the size of the file, in Python integers. This file reads no tensor.

Source: https://github.com/huggingface/safetensors, README "Format" and attacks/README.md.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TypeGuard

from edgequant.errors import CheckpointError

MAX_HEADER_BYTES = 100_000_000
MAX_NAME = 512  # characters; messages quote names
LFS_MARK = b"version https://git-lfs"

# Bits of a value, by the names of safetensors' Dtype.
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "C64": 64,
    "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip
_DOWNLOAD_AGAIN = "fetch this file again; the download was cut short or altered."


@dataclass(frozen=True)
class Entry:
    """A tensor as a header lists it: safetensors' dtype name, shape, and bytes in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


def refuse_lfs_pointer(path: Path, head: bytes) -> None:
    """Raise if a file that begins with `head` is a git-lfs pointer instead of its content."""
    if head.startswith(LFS_MARK):
        fields = dict(line.partition(" ")[::2] for line in head.decode("latin-1").splitlines())
        target = f", which stands for a file of {fields['size']} bytes" if "size" in fields else ""
        raise CheckpointError(
            f"{path}: a git-lfs pointer of {path.stat().st_size} bytes{target}.",
            hint="run `git lfs pull` in the checkpoint, or download it from the Hub.",
        )


def read_header(path: Path) -> dict[str, Entry]:
    """Read and check a shard's header.

    Args:
        path: a .safetensors file.

    Returns:
        Its tensors by name, in the order of their bytes.

    Raises:
        CheckpointError: the file is not a whole, well-formed shard.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(512)
            refuse_lfs_pointer(path, head)
            length = _header_length(path, head, size)
            file.seek(8)
            text = file.read(length)
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be read ({error.strerror}).", hint="check the path and its rights."
        ) from error
    entries = [
        _entry(path, name, fields, 8 + length)
        for name, fields in _parse(path, text).items()
        if name != "__metadata__"
    ]
    entries.sort(key=lambda entry: (entry.start, entry.stop))
    _check_layout(path, entries, 8 + length, size)
    return {entry.name: entry for entry in entries}


def _header_length(path: Path, head: bytes, size: int) -> int:
    if size < 8:
        raise CheckpointError(
            f"{path}: has {size} bytes, but a shard begins with 8 bytes of header length.",
            hint=_DOWNLOAD_AGAIN,
        )
    length = int.from_bytes(head[:8], "little")
    if length > MAX_HEADER_BYTES:
        raise CheckpointError(
            f"{path}: claims a header of {length:,} bytes, over the limit of {MAX_HEADER_BYTES:,}.",
            hint="check what was downloaded; this is not a safetensors file.",
        )
    if length > size - 8:
        raise CheckpointError(
            f"{path}: claims a header of {length:,} bytes, but only {size - 8:,} bytes follow.",
            hint=_DOWNLOAD_AGAIN,
        )
    return length


def _parse(path: Path, text: bytes) -> Mapping[str, object]:
    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found: dict[str, object] = {}
        for key, value in pairs:
            if key in found:
                raise CheckpointError(
                    f"{path}: the header has '{key[:MAX_NAME]}' twice.",
                    hint="save the checkpoint again.",
                )
            found[key] = value
        return found

    try:
        header = json.loads(text.decode(), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path}: the header of {len(text):,} bytes is not JSON.", hint=_DOWNLOAD_AGAIN
        ) from error
    if not isinstance(header, dict):
        raise CheckpointError(
            f"{path}: the header is a {type(header).__name__}, not an object.",
            hint="check what was downloaded; this is not a safetensors file.",
        )
    return header


def _entry(path: Path, name: str, fields: object, origin: int) -> Entry:
    """Check one tensor's fields; `origin` is where tensor bytes begin in the file."""
    if len(name) > MAX_NAME:
        raise CheckpointError(
            f"{path}: a tensor's name has {len(name):,} characters, over the limit of {MAX_NAME}.",
            hint="save the checkpoint again, with shorter names.",
        )
    broken = CheckpointError(
        f"{path}: '{name}' needs a dtype, a shape of sizes and two data_offsets, "
        f"but the header says {str(fields)[:120]}.",
        hint="save the checkpoint again with the safetensors library.",
    )
    if not isinstance(fields, dict):
        raise broken
    dtype, shape, offsets = (fields.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not (isinstance(dtype, str) and _are_sizes(shape) and _are_sizes(offsets)):
        raise broken
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        raise broken
    if prod(max(1, size) for size in shape) >= 1 << 60:  # also of no weights: NumPy holds no such
        raise broken
    if dtype not in _BITS:
        raise CheckpointError(
            f"{path}: '{name}' has the unknown dtype {dtype!r}.",
            hint=f"save it in one of {', '.join(_BITS)}.",
        )
    needed, rest = divmod(prod(shape) * _BITS[dtype], 8)
    held = offsets[1] - offsets[0]
    if rest or needed != held:
        raise CheckpointError(
            f"{path}: '{name}' of shape {tuple(shape)} in {dtype} takes {needed:,} bytes, "
            f"but its offsets hold {held:,}.",
            hint="save the checkpoint again; its header contradicts itself.",
        )
    return Entry(name, dtype, tuple(shape), origin + offsets[0], origin + offsets[1])


def _are_sizes(value: object) -> TypeGuard[list[int]]:
    """Whether a value is a list of integers in 0..2^63 (a bool is not an integer here)."""
    return isinstance(value, list) and all(type(i) is int and 0 <= i < 1 << 63 for i in value)


def _check_layout(path: Path, entries: list[Entry], origin: int, size: int) -> None:
    """Check that the tensors fill the file from `origin` to its end, without holes or overlaps."""
    end = origin
    for entry in entries:
        if entry.stop > size:
            raise CheckpointError(
                f"{path}: '{entry.name}' ends at byte {entry.stop:,}, but the file has {size:,}.",
                hint=_DOWNLOAD_AGAIN,
            )
        if entry.start != end:
            raise CheckpointError(
                f"{path}: '{entry.name}' begins at byte {entry.start:,}, "
                f"but what precedes it ends at byte {end:,}.",
                hint="save the checkpoint again; its tensors must follow each other.",
            )
        end = entry.stop
    if end != size:
        raise CheckpointError(
            f"{path}: the tensors end at byte {end:,}, but the file has {size:,}.",
            hint=_DOWNLOAD_AGAIN,
        )
