"""Superblocks of 256 weights in sub-blocks with a 4-bit scale, x = (d (1 + 2 sc)) ± g, g of a grid.

What the IQ2 and IQ3 formats have in common; they differ in their grids, in how many weights share a
scale, in whether 8 signs take 8 bits or 7, and in where bits go. (ggml has the points of two of
them in whole numbers and divides by 4 or 8; here the points are divided.)

It does not know layouts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgequant.blocks import Bytes, Floats
from edgequant.formats.costs import by_superblock
from edgequant.formats.grid import Grid, GridFit
from edgequant.formats.odd_codes import odd_codes
from edgequant.formats.search import HALF_LARGEST, Effort, Search, fan, turn

WEIGHTS = 256
LARGEST = HALF_LARGEST * 31  # the largest scale, times a level of at least 1


@dataclass(frozen=True)
class GridSearch:
    """How much work one effort is.

    Attributes:
        search: as everywhere; a start's span is the level that the largest magnitude takes.
        first: points that are tried for every group while starts are compared.
        near: points that are tried after that.
    """

    search: Search
    first: int
    near: int


Efforts = Mapping[Effort, GridSearch]
# Of grids of 8 levels, to about 15, and of 3 levels, to about 5.
THREE_BITS: Efforts = {
    Effort.FAST: GridSearch(Search(fan((13.5, 15, 16.5)), rounds=0), 2, 4),
    Effort.DEFAULT: GridSearch(
        Search(fan((11.5, 12.5, 13.5, 14.25, 15, 15.75, 16.5, 17.5)), rounds=0, sweeps=1), 4, 8
    ),
    Effort.BEST: GridSearch(
        Search(fan([10 + step / 2 for step in range(18)]), rounds=1, sweeps=2), 8, 16
    ),
}
TWO_BITS: Efforts = {
    Effort.FAST: GridSearch(Search(fan((4.75, 5.75)), rounds=0), 2, 8),
    Effort.DEFAULT: GridSearch(Search(fan((4.25, 4.75, 5.25, 5.75, 6.25)), sweeps=1), 4, 12),
    Effort.BEST: GridSearch(
        Search(fan([3.5 + step / 4 for step in range(13)]), rounds=1, sweeps=2), 8, 16
    ),
}


@dataclass(frozen=True)
class GridBlocks:
    """A format's numbers.

    Attributes:
        grid: makes or finds the grid.
        each: sub-blocks of a superblock.
        even: whether an even number of 8 signs is negative, as 7 bits ask for.
        efforts: what each effort is.
    """

    grid: Callable[[], Grid]
    each: int
    even: bool
    efforts: Efforts

    def encode(self, weights: Floats, importance: Floats | None, effort: Effort) -> "Parts":
        """Encode (rows, blocks, 256) float32, by weighted squared error.

        Source of the costs: quantize_row_iq3_s_impl and its like, ggml-quants.c at llama.cpp
        0c1e57098; the search is ours.
        """
        x = turn(weights.reshape(-1, WEIGHTS // self.each), LARGEST)
        costs = by_superblock(x, importance, len(weights), self.each, factor=2)
        fit = GridFit(x, costs, self.grid(), even=self.even)
        work = self.efforts[effort]
        scale = fit.search(work.search, work.first)
        found = odd_codes(fit, scale, self.each, sweeps=work.search.sweeps, near=work.near)
        return _parts(found.d, found.codes, fit)

    def refit(self, d: Floats, codes: Bytes, weights: Floats) -> "Parts":
        """Find the points nearest to (n, 256) weights under the scales of n superblocks."""
        x = turn(weights.reshape(-1, WEIGHTS // self.each), LARGEST)
        fit = GridFit(x, np.ones_like(x), self.grid(), even=self.even)
        fit.assign(_scales(d, codes).reshape(-1), self.efforts[Effort.FAST].near)
        return _parts(d, codes, fit)

    def decode(self, parts: "Parts", out: Floats) -> None:
        """Decode n superblocks into (n, 256) float32; every product is exact, as in gguf-py."""
        table = self.grid().rows
        table.take(parts.points, axis=0, out=out.reshape(*parts.points.shape, -1), mode="clip")
        eights = out.reshape(-1, 32, 8)
        eights *= _SIGNS[parts.signs]
        sub_blocks = out.reshape(-1, self.each, WEIGHTS // self.each)
        sub_blocks *= _scales(parts.d, parts.codes)[..., None]


@dataclass(frozen=True)
class Parts:
    """What a format stores of n superblocks.

    Attributes:
        d: (n,), float16 values.
        codes: (n, each), 0..15.
        points: (n, 256 / dims), their numbers in the grid.
        signs: (n, 32), a bit for each weight, 1 where it is negative.
    """

    d: Floats
    codes: Bytes
    points: NDArray[np.uint16]
    signs: Bytes


def _parts(d: Floats, codes: Bytes, fit: GridFit) -> Parts:
    points = fit.points.T.reshape(len(d), -1).astype(np.uint16)
    negative = np.ascontiguousarray(fit.negative.T).reshape(len(d), WEIGHTS)
    return Parts(d, codes, points, np.packbits(negative, axis=-1, bitorder="little"))


def _scales(d: Floats, codes: Bytes) -> Floats:
    """Return the scale of each sub-block, (n, each)."""
    scales: Floats = (2 * codes.astype(np.float32) + 1) * d[:, None]
    return scales


_SIGNS = 1 - 2 * np.unpackbits(
    np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little"
).astype(np.float32)
# By 7 signs all 8: the eighth makes the negative ones even.
_EIGHT = np.arange(128, dtype=np.uint8)
_EIGHT = _EIGHT | ((_SIGNS[:128] < 0).sum(1) % 2 << 7).astype(np.uint8)


def seven_signs(signs: Bytes) -> Bytes:
    """Leave out every eighth sign."""
    return signs & np.uint8(127)


def eight_signs(seven: NDArray[np.integer]) -> Bytes:
    """Undo `seven_signs`: an even number of 8 is negative."""
    eight: Bytes = _EIGHT[seven]
    return eight


def pack_codes(codes: Bytes) -> Bytes:
    """Put neighbours into bytes, the first in the low half: (n, each) -> (n, each / 2)."""
    return codes[:, 0::2] | codes[:, 1::2] << np.uint8(4)


def unpack_codes(packed: Bytes) -> Bytes:
    """Undo `pack_codes`."""
    return np.stack([packed & np.uint8(15), packed >> np.uint8(4)], axis=-1).reshape(
        len(packed), -1
    )


def pack_words(parts: Parts) -> NDArray[np.uint32]:
    """Put four times 7 signs and, above them, the code of each sub-block of 32 into (n, 8)."""
    words = parts.codes.astype(np.uint32) << np.uint32(28)
    for place, seven in enumerate(seven_signs(parts.signs).reshape(-1, 8, 4).transpose(2, 0, 1)):
        words |= seven.astype(np.uint32) << np.uint32(7 * place)
    return words


def unpack_words(words: NDArray[np.uint32]) -> tuple[Bytes, Bytes]:
    """Return the codes, (n, 8), and the signs, (n, 32), of `pack_words`."""
    seven = words[..., None] >> np.arange(0, 28, 7, dtype=np.uint32) & np.uint32(127)
    return (words >> np.uint32(28)).astype(np.uint8), eight_signs(seven).reshape(-1, 32)
