"""Weights of a model from arrays, without files: what conversion does, at test size."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgequant.blocks import BLOCK_TYPES, TensorInfo, Weight, Weights
from edgequant.formats import find, quantize
from edgequant.model.architecture import Architecture
from edgequant.model.hparams import HParams
from edgequant.model.tensors import TensorSpec

GOLDEN = sorted((Path(__file__).parent / "golden" / "logits").glob("*.npz"))


def weight(name: str, array: NDArray[Any], fmt: str = "F32") -> Weight:
    """A weight of this format."""
    info = TensorInfo(name, BLOCK_TYPES[fmt], array.shape)
    rows = np.ascontiguousarray(array, np.float32).reshape(info.rows, info.columns)
    return Weight(info, quantize(find(fmt), rows))


def assemble(
    architecture: Architecture, h: HParams, sources: Mapping[str, NDArray[Any]]
) -> Weights:
    """The float32 weights that convert would write of a checkpoint's arrays."""
    made = {spec.name: weight(spec.name, _array(spec, sources)) for spec in architecture.tensors(h)}
    return Weights(Path("made"), (), made)


def _array(spec: TensorSpec, sources: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    if spec.compute is not None:
        return spec.compute()
    source = sources[spec.source or ""]
    chunks = [  # of three rows, so that a transform is tried across heads
        spec.prepare(lambda a, b: source[a:b], source.shape, start, min(start + 3, spec.shape[0]))
        for start in range(0, spec.shape[0], 3)
    ]
    return np.concatenate(chunks)
