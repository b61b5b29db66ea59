"""Which bytes a model's file will hold, or its files if none may be too large.

All sizes are known here, before the first byte is written.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from edgequant.blocks import TensorInfo
from edgequant.errors import FileError
from edgequant.gguf.encode import check_tensors, encode_entry, encode_head, padded
from edgequant.gguf.head import check_alignment
from edgequant.gguf.parts import MAX_PARTS, part_keys, part_path
from edgequant.gguf.spec import KeyValue, typed

_LARGER = "choose a larger --split-max-size."


@dataclass(frozen=True)
class Part:
    """One file that is to be.

    Attributes:
        path: its name.
        head: what precedes the tensors' bytes.
        tensors: whose bytes follow, each padded to `alignment`.
    """

    path: Path
    head: bytes
    tensors: tuple[TensorInfo, ...]
    alignment: int

    @property
    def ends(self) -> Iterator[int]:
        """Where the padded bytes of each tensor end in the file."""
        end = len(self.head)
        for info in self.tensors:
            end += padded(info.nbytes, self.alignment)
            yield end

    @property
    def nbytes(self) -> int:
        """Of the whole file."""
        return max(self.ends, default=len(self.head))


def lay_out(
    path: Path,
    keys: Mapping[str, object],
    tensors: Sequence[TensorInfo],
    part_nbytes: int | None = None,
) -> tuple[Part, ...]:
    """Decide what goes into which file.

    Args:
        path: the file, or what names the parts.
        keys: plain values, typed as `typed` does, or `KeyValue`s.
        tensors: all of them, in the order in which they will be written.
        part_nbytes: what no file may exceed, heads included; None makes one file, named `path`.

    Raises:
        GGUFError: a tensor or key that the format, or llama.cpp, cannot hold.
        FileError: a file of that size cannot hold the keys, or a tensor.
    """
    entries = {key: typed(value) for key, value in keys.items()}
    alignment = check_alignment(path, entries)
    check_tensors(path, tensors)
    if part_nbytes is None:
        return (
            Part(path, encode_head(path, entries, tensors, alignment), tuple(tensors), alignment),
        )
    groups = _pack(path, entries, tensors, alignment, part_nbytes)
    parts = []
    for number, group in enumerate(groups):
        name = part_path(path, number, len(groups))
        said = _keys_of(entries, number, len(groups), len(tensors))
        parts.append(Part(name, encode_head(name, said, group, alignment), tuple(group), alignment))
    return tuple(parts)


def digest(parts: Sequence[Part]) -> str:
    """Return a hash of all heads, that is of keys, tensors, types, and how they are divided."""
    return sha256(b"".join(part.head for part in parts)).hexdigest()


def _keys_of(
    entries: Mapping[str, KeyValue], number: int, count: int, tensors: int
) -> dict[str, KeyValue]:
    """Return the keys of a part: all are in the first, the others say how they are aligned."""
    own = {k: v for k, v in entries.items() if number == 0 or k == "general.alignment"}
    return own | part_keys(number, count, tensors)


def _pack(
    path: Path,
    entries: Mapping[str, KeyValue],
    tensors: Sequence[TensorInfo],
    alignment: int,
    limit: int,
) -> list[list[TensorInfo]]:
    """Fill one part after the other, in order; beside large keys the first may hold no tensor."""

    def bare(number: int) -> int:
        return len(encode_head(path, _keys_of(entries, number, 1, 0), (), 1))

    first, later = bare(0), bare(1)
    if padded(first, alignment) > limit:
        raise FileError(
            f"{path}: its keys take {padded(first, alignment):,} bytes, more than the {limit:,} "
            "that a part may have.",
            hint=_LARGER,
        )
    groups: list[list[TensorInfo]] = [[]]
    head, data = first, 0
    for info in tensors:
        entry, own = len(encode_entry(info, 0)), padded(info.nbytes, alignment)
        if padded(head + entry, alignment) + data + own > limit:
            alone = padded(later + entry, alignment) + own
            if alone > limit:
                raise FileError(
                    f"{path}: a part with only '{info.name}' takes {alone:,} bytes, more than the "
                    f"{limit:,} that it may have.",
                    hint=_LARGER,
                )
            groups.append([])
            head, data = later, 0
        groups[-1].append(info)
        head, data = head + entry, data + own
    if len(groups) > MAX_PARTS:
        raise FileError(
            f"{path}: would be {len(groups):,} parts of {limit:,} bytes; at most {MAX_PARTS:,} "
            "can be counted.",
            hint=_LARGER,
        )
    return groups
