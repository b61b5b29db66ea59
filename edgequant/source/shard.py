"""One safetensors shard: a validated header, and its tensors read by row slices.

The bytes are read by the `safetensors` library; `ml_dtypes` lends NumPy a bfloat16. This file does
not know what else is in the checkpoint.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from edgequant.blocks import LazyTensor
from edgequant.errors import CheckpointError
from edgequant.source.header import Entry, read_header

DTYPES: Mapping[str, np.dtype] = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}


class Shard:
    """A shard on disk: what its header lists, and a way to read it.

    The file is mapped when the first tensor is read, and stays mapped as long as the shard lives.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries = read_header(path)
        self._mapped: Any = None

    def tensor(self, entry: Entry) -> LazyTensor:
        """Return one of `entries` as a tensor to read; its dtype is one of `DTYPES`."""
        return LazyTensor(entry.name, entry.shape, DTYPES[entry.dtype], self._reader(entry))

    def _reader(self, entry: Entry) -> Callable[[int, int], NDArray[np.generic]]:
        def read(start: int, stop: int) -> NDArray[np.generic]:
            if 0 in entry.shape or start >= stop:  # the library slices no empty tensor
                return np.empty((max(0, stop - start), *entry.shape[1:]), DTYPES[entry.dtype])
            try:
                if self._mapped is None:
                    self._mapped = safe_open(self.path, framework="np")
                rows: NDArray[np.generic] = self._mapped.get_slice(entry.name)[start:stop]
            except (SafetensorError, OSError) as error:
                raise CheckpointError(
                    f"{self.path}: rows {start} to {stop} of '{entry.name}' cannot be read "
                    f"({error}).",
                    hint="check that the file is still there and has not changed.",
                ) from error
            return rows

        return read
