"""The head of a GGUF file, read and checked: counts, keys, and where each tensor lies.

Nothing a file says is believed before it was compared with the bytes that are there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgequant.blocks import BLOCK_TYPES_BY_ID, TensorInfo
from edgequant.errors import GGUFError
from edgequant.gguf.cursor import CUT_SHORT, DAMAGED, Cursor
from edgequant.gguf.spec import (
    DEFAULT_ALIGNMENT,
    MAGIC,
    MAX_ALIGNMENT,
    MAX_DIMENSIONS,
    MAX_ENTRIES,
    VERSIONS,
    KeyValue,
    ValueType,
)

_SMALLEST_KEY = 8 + 4 + 1  # an empty name, a type, one byte
_SMALLEST_TENSOR = 8 + 4 + 4 + 8  # an empty name, no dimensions, a type, an offset
_VERSION_HINT = "use a little-endian file of GGUF version 2 or 3; llama.cpp converts older ones."


@dataclass(frozen=True)
class Head:
    """What precedes the tensors' bytes.

    Attributes:
        version: 2 or 3.
        alignment: of the tensors' offsets, in bytes.
        keys: in file order.
        tensors: in file order.
        starts: the byte of the file where each tensor's data begins.
    """

    version: int
    alignment: int
    keys: dict[str, KeyValue]
    tensors: dict[str, TensorInfo]
    starts: dict[str, int]


def read_head(path: Path, view: memoryview) -> Head:
    """Read and check all that a file says of itself.

    Args:
        path: for messages.
        view: the whole file, whose magic has been checked.

    Raises:
        GGUFError: it contradicts itself, the format, or the file's length.
    """
    cursor = Cursor(path, view)
    version, tensor_count, key_count = _read_counts(cursor)
    keys = _read_keys(cursor, key_count)
    alignment = check_alignment(path, keys)
    tensors, offsets = _read_tensors(cursor, tensor_count)
    start = -(-cursor.at // alignment) * alignment
    _check_layout(path, tensors, offsets, alignment, len(view) - start)
    starts = {name: start + offset for name, offset in offsets.items()}
    return Head(version, alignment, keys, tensors, starts)


def _read_counts(cursor: Cursor) -> tuple[int, int, int]:
    cursor.at = len(MAGIC)
    version = cursor.u32("the version")
    if version not in VERSIONS:
        raise GGUFError(f"{cursor.path}: {_describe_version(version)}", hint=_VERSION_HINT)
    tensors = cursor.u64("the number of tensors")
    keys = cursor.u64("the number of keys")
    for what, count, least in (
        ("keys", keys, _SMALLEST_KEY),
        ("tensors", tensors, _SMALLEST_TENSOR),
    ):
        most = min(cursor.left // least, MAX_ENTRIES)
        if count > most:
            raise GGUFError(
                f"{cursor.path}: claims {count:,} {what}; at most {most:,} are possible in the "
                f"{cursor.left:,} bytes that follow.",
                hint=CUT_SHORT,
            )
    return version, tensors, keys


def _describe_version(version: int) -> str:
    if version and version & 0xFFFF == 0:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        return f"is a big-endian GGUF file of version {swapped}; only little-endian is read."
    return f"is GGUF version {version}; versions read are {' and '.join(map(str, VERSIONS))}."


def _read_keys(cursor: Cursor, count: int) -> dict[str, KeyValue]:
    keys: dict[str, KeyValue] = {}
    for index in range(count):
        name = cursor.text(f"the name of key {index:,}")
        if name in keys:
            raise GGUFError(f"{cursor.path}: has key {name!r} twice.", hint=DAMAGED)
        keys[name] = cursor.value(f"key {name!r}")
    return keys


def check_alignment(path: Path, keys: Mapping[str, KeyValue]) -> int:
    """Return what general.alignment says, or the default.

    Raises:
        GGUFError: not a power of two, or a huge one.
    """
    entry = keys.get("general.alignment")
    if entry is None:
        return DEFAULT_ALIGNMENT
    value = entry.value
    good = entry.type is ValueType.UINT32 and isinstance(value, int) and value > 0
    if not good or value & (value - 1) or value > MAX_ALIGNMENT:  # type: ignore[operator]
        raise GGUFError(
            f"{path}: general.alignment is {value!r} ({entry.type.name}); it must be a power of "
            f"two up to {MAX_ALIGNMENT:,} (UINT32).",
            hint=DAMAGED,
        )
    return int(value)  # type: ignore[call-overload, no-any-return]


def _read_tensors(cursor: Cursor, count: int) -> tuple[dict[str, TensorInfo], dict[str, int]]:
    infos: dict[str, TensorInfo] = {}
    offsets: dict[str, int] = {}
    for index in range(count):
        name = cursor.text(f"the name of tensor {index:,}")
        what = f"tensor {name!r}"
        if name in infos:
            raise GGUFError(f"{cursor.path}: has {what} twice.", hint=DAMAGED)
        dimensions = cursor.u32(f"the number of dimensions of {what}")
        if dimensions > MAX_DIMENSIONS:
            raise GGUFError(
                f"{cursor.path}: {what} has {dimensions:,} dimensions; at most {MAX_DIMENSIONS} "
                "are possible.",
                hint=DAMAGED,
            )
        # On disk the contiguous axis comes first.
        shape = tuple(cursor.u64(f"the shape of {what}") for _ in range(dimensions))[::-1]
        type_id = cursor.u32(f"the type of {what}")
        offsets[name] = cursor.u64(f"the offset of {what}")
        infos[name] = _describe_tensor(cursor.path, name, type_id, shape)
    return infos, offsets


def _describe_tensor(path: Path, name: str, type_id: int, shape: tuple[int, ...]) -> TensorInfo:
    block = BLOCK_TYPES_BY_ID.get(type_id)
    if block is None:
        raise GGUFError(
            f"{path}: tensor {name!r} has type {type_id}, which is none of the "
            f"{len(BLOCK_TYPES_BY_ID)} known (0 to {max(BLOCK_TYPES_BY_ID)}).",
            hint="make the file again in a current format; some old ones were given up.",
        )
    info = TensorInfo(name, block, shape)
    if 0 in shape:
        raise GGUFError(f"{path}: tensor {name!r} has shape {shape}: no weights.", hint=DAMAGED)
    if info.columns % block.weights:
        raise GGUFError(
            f"{path}: tensor {name!r} has rows of {info.columns:,} weights, which are not whole "
            f"blocks of {block.weights} ({block.name}).",
            hint=DAMAGED,
        )
    return info


def _check_layout(
    path: Path,
    infos: Mapping[str, TensorInfo],
    offsets: Mapping[str, int],
    alignment: int,
    room: int,
) -> None:
    end, before = 0, ""
    for name in sorted(offsets, key=offsets.__getitem__):
        start, nbytes = offsets[name], infos[name].nbytes
        if start % alignment:
            raise GGUFError(
                f"{path}: tensor {name!r} starts at {start:,}, not a multiple of {alignment}.",
                hint=DAMAGED,
            )
        if start < end:
            raise GGUFError(
                f"{path}: tensor {name!r} starts at {start:,}, inside {before!r}, which ends at "
                f"{end:,}.",
                hint=DAMAGED,
            )
        end, before = start + nbytes, name
        if end > room:
            raise GGUFError(
                f"{path}: tensor {name!r} ends at byte {end:,} of the tensors, but the file has "
                f"{max(room, 0):,} bytes of them.",
                hint=CUT_SHORT,
            )
