"""What precedes the tensors' bytes in a GGUF file, as bytes."""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from edgequant.blocks import TensorInfo
from edgequant.errors import GGUFError
from edgequant.gguf.arrays import Array
from edgequant.gguf.spec import (
    MAGIC,
    MAX_DIMENSIONS,
    MAX_NAME_BYTES,
    NUMBERS,
    VERSIONS,
    KeyValue,
    ValueType,
)


def encode_head(
    path: Path, keys: Mapping[str, KeyValue], tensors: Sequence[TensorInfo], alignment: int
) -> bytes:
    """Return all that precedes the tensors' bytes, padded to where they begin.

    Args:
        path: for messages.
        keys: written in this order.
        tensors: checked by `check_tensors`; their bytes follow in this order.
        alignment: of each tensor's start.

    Raises:
        GGUFError: a text is not Unicode.
    """
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
    offset = 0
    for info in tensors:
        head += encode_entry(info, offset)
        offset += padded(info.nbytes, alignment)
    head += bytes(-len(head) % alignment)
    return bytes(head)


def encode_entry(info: TensorInfo, offset: int) -> bytes:
    """Return what the head says of a tensor, whose bytes start at `offset` of all tensors'."""
    shape = info.shape[::-1]  # on disk the contiguous axis comes first
    sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return _encode_string(info.name) + sizes + struct.pack("<IQ", info.type.ggml_id, offset)


def padded(nbytes: int, alignment: int) -> int:
    """Round up to a multiple of the alignment."""
    return -(-nbytes // alignment) * alignment


def check_tensors(path: Path, tensors: Sequence[TensorInfo]) -> None:
    """Check that GGUF, and llama.cpp, can hold such tensors, each once.

    Raises:
        GGUFError: one they cannot hold.
    """
    seen: set[str] = set()
    for info in tensors:
        _check_tensor(path, info, seen)
        seen.add(info.name)


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
