"""What a GGUF file holds: keys, tensors, bits per weight; of an importance matrix, its coverage.

It reads any GGUF file, also of architectures we do not know, and so believes no key to be there.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgequant.blocks import BLOCK_TYPES, TensorInfo, Weights
from edgequant.gguf.arrays import Array
from edgequant.gguf.reader import GGUFFile, open_file
from edgequant.gguf.spec import KeyValue, ValueType
from edgequant.model.imatrix_file import COUNTS, SUMS, is_importance

SHOWN_ITEMS = 5


@dataclass(frozen=True)
class ArrayReport:
    """An array key: the type of its items, how many, and the first few."""

    type: str
    length: int
    first: list[object]


@dataclass(frozen=True)
class TensorReport:
    """A tensor; its shape as (rows, columns)."""

    name: str
    type: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class TypeReport:
    """All tensors of one type together."""

    type: str
    tensors: int
    parameters: int
    bytes: int


@dataclass(frozen=True)
class EntryReport:
    """What an importance matrix knows of one weight.

    Attributes:
        name: the weight's.
        columns: input features of one matrix.
        matrices: 1, or the number of experts.
        unseen: matrices that no token reached.
        zeros: columns, of all matrices, whose sum of squares is 0.
        tokens: how many tokens reached the matrix that saw most.
    """

    name: str
    columns: int
    matrices: int
    unseen: int
    zeros: int
    tokens: int


@dataclass(frozen=True)
class CoverageReport:
    """What an importance matrix was measured on; None where its keys do not say."""

    chunks: int | None
    chunk_size: int | None
    datasets: list[object]
    entries: tuple[EntryReport, ...]


@dataclass(frozen=True)
class InspectReport:
    """What a file holds.

    Attributes:
        path: as given.
        files: of the model; several if it is in parts, whose keys and tensors are shown as one's.
        bytes: the length of all of them.
        version: of the format.
        alignment: of the tensors' offsets, in bytes.
        summary: its architecture and sizes in a line.
        parameters: weights of all tensors.
        tensor_bytes: without padding.
        bits_per_weight: 8 tensor_bytes / parameters; None without tensors.
        keys: plain values, and `ArrayReport`s.
        tensors: in file order.
        types: in ggml's order.
        coverage: of an importance matrix only.
    """

    path: str
    files: tuple[str, ...]
    bytes: int
    version: int
    alignment: int
    summary: str
    parameters: int
    tensor_bytes: int
    bits_per_weight: float | None
    keys: dict[str, object]
    tensors: tuple[TensorReport, ...]
    types: tuple[TypeReport, ...]
    coverage: CoverageReport | None


def inspect(path: Path) -> InspectReport:
    """List what a GGUF file holds; tensors' bytes are read only of an importance matrix.

    Raises:
        FileError: it cannot be read.
        GGUFError: it is not a sound GGUF file.
    """
    with open_file(path) as file:
        infos = list(file.tensors.values())
        parameters = sum(info.weights for info in infos)
        tensor_bytes = sum(info.nbytes for info in infos)
        return InspectReport(
            path=str(path),
            files=tuple(map(str, file.paths)),
            bytes=file.nbytes,
            version=file.version,
            alignment=file.alignment,
            summary=_summarise(file),
            parameters=parameters,
            tensor_bytes=tensor_bytes,
            bits_per_weight=8 * tensor_bytes / parameters if parameters else None,
            keys={key: _shorten(entry) for key, entry in file.keys.items()},
            tensors=tuple(TensorReport(i.name, i.type.name, i.shape, i.nbytes) for i in infos),
            types=_total_types(infos),
            coverage=_measure_coverage(file) if is_importance(file) else None,
        )


def _shorten(entry: KeyValue) -> object:
    value = entry.value
    if isinstance(value, Array):
        first = [_round(item, value.item) for item in value.first(SHOWN_ITEMS)]
        return ArrayReport(value.item.name, len(value), first)
    return _round(value, entry.type)


def _round(value: object, kind: ValueType) -> object:
    """Say 0.1 where a 32-bit float is as near to 0.1 as it can be."""
    return float(str(np.float32(value))) if kind is ValueType.FLOAT32 else value  # type: ignore[arg-type]


def _total_types(infos: list[TensorInfo]) -> tuple[TypeReport, ...]:
    groups = ((name, [i for i in infos if i.type.name == name]) for name in BLOCK_TYPES)
    return tuple(
        TypeReport(name, len(group), sum(i.weights for i in group), sum(i.nbytes for i in group))
        for name, group in groups
        if group
    )


# GGUF's names of the sizes, after the architecture's name and a dot; %s is the value.
_SIZES = (
    ("block_count", "%s layers"), ("embedding_length", "width %s"),
    ("attention.head_count", "%s heads"), ("attention.head_count_kv", "%s KV heads"),
    ("feed_forward_length", "feed-forward %s"), ("expert_count", "%s experts"),
    ("context_length", "context %s"),
)  # fmt: skip


def _summarise(file: GGUFFile) -> str:
    if is_importance(file):
        return "importance matrix"
    architecture = file.keys.get("general.architecture")
    if architecture is None:
        return "no architecture"
    words = [str(architecture.value)]
    for key, phrase in _SIZES:
        size = file.keys.get(f"{architecture.value}.{key}")
        if size is not None and isinstance(size.value, int):
            words.append(phrase % f"{size.value:,}")
    tokens = file.keys.get("tokenizer.ggml.tokens")
    if tokens is not None and isinstance(tokens.value, Array):
        words.append(f"vocabulary {len(tokens.value):,}")
    return ", ".join(words)


def _measure_coverage(file: GGUFFile) -> CoverageReport:
    datasets = file.keys.get("imatrix.datasets")
    weights = file.weights()
    names = [name.removesuffix(SUMS) for name in weights if name.endswith(SUMS)]
    entries = (_measure_entry(weights, name) for name in names)
    return CoverageReport(
        chunks=_integer(file, "imatrix.chunk_count"),
        chunk_size=_integer(file, "imatrix.chunk_size"),
        datasets=list(datasets.value) if datasets and isinstance(datasets.value, Array) else [],
        entries=tuple(entry for entry in entries if entry is not None),
    )


def _measure_entry(weights: Weights, name: str) -> EntryReport | None:
    """Return None for an entry that is not as llama-imatrix writes them."""
    sums, counts = weights[name + SUMS], weights.get(name + COUNTS)
    if counts is None or sums.type.name != "F32" or counts.type.name != "F32":
        return None
    matrices = counts.info.weights
    tokens, squares = counts.data.view("<f4"), sums.data.view("<f4")
    most = float(tokens.max())
    return EntryReport(
        name=name,
        columns=sums.info.columns,
        matrices=matrices,
        unseen=matrices - int(np.count_nonzero(tokens)),
        zeros=squares.size - int(np.count_nonzero(squares)),
        tokens=round(most) if np.isfinite(most) else 0,
    )


def _integer(file: GGUFFile, key: str) -> int | None:
    entry = file.keys.get(key)
    return entry.value if entry is not None and isinstance(entry.value, int) else None
