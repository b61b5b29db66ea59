"""A model in several files: how they are named, and what each says of the set.

The first part has all keys, and the parts share the tensors between them. Every part says its
number from 0 (split.no), how many there are (split.count), and how many tensors there are in all
(split.tensors.count). Names are `NAME-00001-of-00003.gguf`; llama.cpp finds the others by the name
of the first.

Source: tools/gguf-split/gguf-split.cpp, and llama_split_path of src/llama.cpp, llama.cpp 0c1e57098.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from edgequant.errors import FileError, GGUFError, some
from edgequant.gguf.cursor import DAMAGED
from edgequant.gguf.head import Head
from edgequant.gguf.spec import KeyValue, ValueType

NUMBER, COUNT, TENSORS = "split.no", "split.count", "split.tensors.count"
KEYS = frozenset({NUMBER, COUNT, TENSORS})
MAX_PARTS = (1 << 16) - 1  # split.count is UINT16
_SUFFIX = ".gguf"


def part_path(path: Path, number: int, count: int) -> Path:
    """Return the name of part `number` (from 0) of a model that would be called `path`."""
    stem = path.name.removesuffix(_SUFFIX)
    return path.with_name(f"{stem}-{number + 1:05}-of-{count:05}{_SUFFIX}")


def part_keys(number: int, count: int, tensors: int) -> dict[str, KeyValue]:
    """Return what a part says of the set, in the types that llama-gguf-split writes."""
    return {
        NUMBER: KeyValue(ValueType.UINT16, number),
        COUNT: KeyValue(ValueType.UINT16, count),
        TENSORS: KeyValue(ValueType.INT32, tensors),
    }


def other_parts(path: Path, head: Head) -> list[Path]:
    """Return where the parts after the first one lie; none if the file is a model by itself.

    Raises:
        GGUFError: it is another part than the first, or not named as one.
        FileError: parts are missing.
    """
    count = _number(path, head, COUNT) if COUNT in head.keys else 1
    if count <= 1:
        return []
    number = _number(path, head, NUMBER)
    if not 0 <= number < count <= MAX_PARTS:
        raise GGUFError(
            f"{path}: says it is part {number + 1:,} of {count:,}; at most {MAX_PARTS:,} are "
            "possible.",
            hint=DAMAGED,
        )
    ending = part_path(Path(_SUFFIX), number, count).name
    if not path.name.endswith(ending):
        raise GGUFError(
            f"{path}: is part {number + 1:,} of {count:,} of a model, but its name does not end in "
            f"{ending}.",
            hint="give the parts their names back; the others are found by them.",
        )
    whole = path.with_name(path.name.removesuffix(ending) + _SUFFIX)
    paths = [part_path(whole, i, count) for i in range(count)]
    if number:
        raise GGUFError(
            f"{path}: is part {number + 1:,} of {count:,} of a model.",
            hint=f"name the first part, {paths[0].name}; it opens all.",
        )
    missing = [part.name for part in paths if not part.exists()]
    if missing:
        raise FileError(
            f"{path}: {len(missing):,} of its {count:,} parts are missing: {some(missing)}.",
            hint="put all parts of the model in one directory.",
        )
    return paths[1:]


def check_parts(parts: Sequence[tuple[Path, Head]]) -> None:
    """Check that parts are the ones of one model, in order.

    Raises:
        GGUFError: one is of another model or place, or they hold a tensor twice, or too few.
    """
    first, head = parts[0]
    claimed = _number(first, head, TENSORS)
    homes: dict[str, Path] = {}
    for number, (path, part) in enumerate(parts):
        wanted = {NUMBER: number, COUNT: len(parts), TENSORS: claimed}
        for key, value in wanted.items():
            found = _number(path, part, key)
            if found != value:
                raise GGUFError(
                    f"{path}: {key} is {found:,}, but {value:,} in its place in the model of "
                    f"{first.name}.",
                    hint="take all parts from one model.",
                )
        for name in part.tensors:
            if name in homes:
                raise GGUFError(
                    f"{path}: has tensor {name!r}, which {homes[name].name} has too.",
                    hint="take all parts from one model.",
                )
            homes[name] = path
    if len(homes) != claimed:
        raise GGUFError(
            f"{first}: its {len(parts):,} parts hold {len(homes):,} tensors, but {TENSORS} is "
            f"{claimed:,}.",
            hint="take all parts from one model, and download them again.",
        )


def without_part_keys(keys: Mapping[str, KeyValue]) -> dict[str, KeyValue]:
    """Leave out what speaks of the set, which a model that is read or written anew is not in."""
    return {key: entry for key, entry in keys.items() if key not in KEYS}


def _number(path: Path, head: Head, key: str) -> int:
    entry = head.keys.get(key)
    value = None if entry is None else entry.value
    if type(value) is not int:
        what = "absent" if entry is None else f"{value!r} ({entry.type.name})"
        raise GGUFError(f"{path}: is a part of a model, but {key} is {what}.", hint=DAMAGED)
    return value
