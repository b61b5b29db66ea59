"""llama.cpp's older importance matrix file (.dat): read only, every size checked before use.

Little endian: int32 entries; for each an int32 name length, the name, int32 calls, int32 values
and that many float32, mean squared activations times calls; then, in newer ones, int32 chunks,
int32 length, and the text's name. A tensor's experts follow each other in its values.

Source: common/imatrix-loader.cpp of llama.cpp 0c1e57098.
"""

import struct
from pathlib import Path

import numpy as np

from edgequant.blocks import Floats
from edgequant.errors import ImatrixError
from edgequant.gguf.foreign import HEAD_BYTES, recognise
from edgequant.model.importance import Entry, ImportanceMatrix

_HINT = "make the file again, with edgequant imatrix or llama-imatrix."
_SMALLEST = 3 * 4  # bytes of an entry: its three lengths


class _Bytes:
    """A cursor over a file's content that never reads past its end."""

    def __init__(self, content: bytes, where: str) -> None:
        self._content = content
        self._where = where
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._content) - self._at

    def take(self, nbytes: int, what: str) -> bytes:
        if not 0 <= nbytes <= self.left:
            raise ImatrixError(
                f"{self._where}: {nbytes:,} bytes are needed at byte {self._at:,} for {what}, "
                f"but {self.left:,} are left.",
                hint=_HINT,
            )
        taken = self._content[self._at : self._at + nbytes]
        self._at += nbytes
        return taken

    def integer(self, what: str) -> int:
        value: int = struct.unpack("<i", self.take(4, what))[0]
        return value

    def text(self, what: str) -> str:
        raw = self.take(self.integer(f"the length of {what}"), what)
        return raw.decode("utf-8", errors="replace")

    def floats(self, what: str) -> Floats:
        raw = self.take(4 * self.integer(f"the size of {what}"), what)
        return np.frombuffer(raw, "<f4").astype(np.float32)


def read_legacy(path: Path) -> ImportanceMatrix:
    """Read a .dat file.

    The counts of its entries are calls, one a chunk, not tokens; their quotient is the same.

    Raises:
        ImatrixError: cut short, or not such a file.
    """
    raw = path.read_bytes()
    content = _Bytes(raw, str(path))
    count = content.integer("the number of entries")
    if not 1 <= count <= content.left // _SMALLEST:
        kind = recognise(raw[:HEAD_BYTES], len(raw))
        raise ImatrixError(
            f"{path}: is {kind.what}; as an importance matrix it would have {count:,} entries "
            f"in {content.left:,} bytes.",
            hint="name the file that edgequant imatrix or llama-imatrix wrote.",
        )
    entries: dict[str, Entry] = {}
    for number in range(count):
        name = content.text(f"the name of entry {number:,}")
        if name in entries:
            raise ImatrixError(f"{path}: '{name}' is there twice.", hint=_HINT)
        calls = content.integer(f"the number of calls of '{name}'")
        sums = content.floats(f"the values of '{name}'")
        if not sums.size:
            raise ImatrixError(f"{path}: '{name}' has 0 values.", hint=_HINT)
        entries[name] = Entry(sums[None, :], np.array([calls], np.float32))
    chunks = 0
    datasets: tuple[str, ...] = ()
    if content.left:
        chunks = content.integer("the number of chunks")
        datasets = (content.text("the name of the text"),)
    return ImportanceMatrix(entries, datasets, chunks, None)
