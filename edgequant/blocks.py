"""What the layers pass to each other: block types, tensors still on disk, and a file's weights.

A block type says how many weights a block holds and how many bytes it takes, so that any layer can
size a tensor; how the bits are laid out is the business of `formats`.
"""

import mmap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class BlockType:
    """A ggml tensor type: `weights` values stored in `nbytes` bytes."""

    name: str
    ggml_id: int
    weights: int
    nbytes: int

    @property
    def bits_per_weight(self) -> float:
        """Storage cost, scales included."""
        return 8 * self.nbytes / self.weights

    def row_nbytes(self, columns: int) -> int:
        """Bytes of a row of `columns` weights; `columns` must be whole blocks."""
        blocks, rest = divmod(columns, self.weights)
        if rest:
            raise ValueError(
                f"{columns} columns are not whole blocks of {self.weights} ({self.name})"
            )
        return blocks * self.nbytes


# Source: ggml_type and ggml_type_traits, ggml.h and ggml.c at llama.cpp 0c1e57098; a test compares
# every row with gguf-py's GGML_QUANT_SIZES.
_TABLE = (
    ("F32", 0, 1, 4), ("F16", 1, 1, 2), ("Q4_0", 2, 32, 18), ("Q4_1", 3, 32, 20),
    ("Q5_0", 6, 32, 22), ("Q5_1", 7, 32, 24), ("Q8_0", 8, 32, 34), ("Q8_1", 9, 32, 36),
    ("Q2_K", 10, 256, 84), ("Q3_K", 11, 256, 110), ("Q4_K", 12, 256, 144), ("Q5_K", 13, 256, 176),
    ("Q6_K", 14, 256, 210), ("Q8_K", 15, 256, 292), ("IQ2_XXS", 16, 256, 66),
    ("IQ2_XS", 17, 256, 74), ("IQ3_XXS", 18, 256, 98), ("IQ1_S", 19, 256, 50),
    ("IQ4_NL", 20, 32, 18), ("IQ3_S", 21, 256, 110), ("IQ2_S", 22, 256, 82),
    ("IQ4_XS", 23, 256, 136), ("I8", 24, 1, 1), ("I16", 25, 1, 2), ("I32", 26, 1, 4),
    ("I64", 27, 1, 8), ("F64", 28, 1, 8), ("IQ1_M", 29, 256, 56), ("BF16", 30, 1, 2),
    ("TQ1_0", 34, 256, 54), ("TQ2_0", 35, 256, 66), ("MXFP4", 39, 32, 17), ("NVFP4", 40, 64, 36),
    ("Q1_0", 41, 128, 18), ("Q2_0", 42, 64, 18),
)  # fmt: skip

# Of these layouts: GGML_QNT_VERSION of ggml.h, which files say as general.quantization_version.
QUANTIZATION_VERSION = 2


BLOCK_TYPES: Mapping[str, BlockType] = {row[0]: BlockType(*row) for row in _TABLE}
BLOCK_TYPES_BY_ID: Mapping[int, BlockType] = {t.ggml_id: t for t in BLOCK_TYPES.values()}


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of a model file before its bytes; its shape in NumPy order, (rows, columns)."""

    name: str
    type: BlockType
    shape: tuple[int, ...]

    @property
    def columns(self) -> int:
        """The contiguous axis."""
        return self.shape[-1] if self.shape else 1

    @property
    def rows(self) -> int:
        """All other axes taken together."""
        return prod(self.shape[:-1])

    @property
    def weights(self) -> int:
        """How many values it holds."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of its data, without padding."""
        return self.rows * self.type.row_nbytes(self.columns)


@dataclass(frozen=True)
class Place:
    """Where a tensor's bytes begin: a file, and how many bytes of it come before."""

    path: Path
    start: int


@dataclass(frozen=True)
class Weight:
    """A tensor of a model file with its bytes, a read-only view (rows, row bytes) of the file.

    Pickled, it is its place, if it has one: another process maps the file itself.
    """

    info: TensorInfo
    data: Bytes
    place: Place | None = None

    @property
    def name(self) -> str:
        """The name on disk, such as "blk.0.attn_q.weight"."""
        return self.info.name

    @property
    def shape(self) -> tuple[int, ...]:
        """NumPy order."""
        return self.info.shape

    @property
    def type(self) -> BlockType:
        """How the bytes are to be read."""
        return self.info.type

    def __reduce__(self) -> tuple[Any, ...]:
        """Say how to make it again."""
        if self.place is None:
            return Weight, (self.info, self.data)
        return _mapped_weight, (self.info, self.place)


def _mapped_weight(info: TensorInfo, place: Place) -> Weight:
    data = np.frombuffer(_mapping(place.path), np.uint8, info.nbytes, place.start)
    return Weight(info, data.reshape(info.rows, -1), place)


@cache
def _mapping(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


class Weights(Mapping[str, Weight]):
    """All tensors of one model, and its file, or its files if it is in parts.

    `mappings` are the whole files, for devices that adopt them; `path` is the first one's, for
    engines that open them anew.
    """

    def __init__(
        self, path: Path, mappings: tuple[memoryview, ...], tensors: Mapping[str, Weight]
    ) -> None:
        self.path = path
        self.mappings = mappings
        self._tensors = tensors

    def __getitem__(self, name: str) -> Weight:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


@dataclass(frozen=True)
class LazyTensor:
    """A float tensor of a checkpoint that stays on disk until asked for rows.

    `read(start, stop)` returns rows of the first axis in the stored `dtype` (float32, float16 or
    ml_dtypes' bfloat16); a one-dimensional tensor is read by elements.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    read: Callable[[int, int], NDArray[np.generic]]
