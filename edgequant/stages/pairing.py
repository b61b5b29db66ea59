"""Which tensor of a checkpoint becomes which tensor of the model file.

Names what is missing, left over or misshapen before a weight is read. It reads weights only to see
whether a second copy of the embedding is one. It knows no file format.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edgequant.blocks import LazyTensor
from edgequant.errors import CheckpointError, some
from edgequant.model.architecture import Architecture
from edgequant.model.hparams import HParams
from edgequant.model.tensors import Role, TensorSpec
from edgequant.stages.float_rows import chunks, finite_reader


@dataclass(frozen=True)
class Pair:
    """A tensor to write, and where it comes from; `source` is None if it is computed."""

    spec: TensorSpec
    source: LazyTensor | None

    def read(self, start: int, stop: int) -> NDArray[np.generic]:
        """Return rows start..stop as they are to be written, in the source's float type."""
        if self.source is None:
            assert self.spec.compute is not None
            return self.spec.compute()[start:stop]
        reader = finite_reader(self.source)
        return self.spec.prepare(reader, self.source.shape, start, stop)


@dataclass(frozen=True)
class Pairing:
    """All pairs of a model in the order of its tensors, and what was decided on the way."""

    hparams: HParams
    pairs: tuple[Pair, ...]
    notes: tuple[str, ...]


def pair_tensors(
    architecture: Architecture,
    h: HParams,
    tensors: Mapping[str, LazyTensor],
    *,
    tie_stated: bool,
    where: str,
) -> Pairing:
    """Pair the tensors of an architecture with those of a checkpoint.

    Args:
        architecture: of the model.
        h: its sizes, as the config says.
        tensors: the checkpoint's.
        tie_stated: the config says whether the output is tied; otherwise the tensors say it.
        where: the checkpoint, for errors.

    Raises:
        CheckpointError: tensors missing, left over, or of another shape than the config says.
    """
    notes: list[str] = []
    h, dropped = _settle_output(architecture, h, tensors, tie_stated, notes)
    specs = list(architecture.tensors(h))
    missing = [
        spec.source for spec in specs if spec.source is not None and spec.source not in tensors
    ]
    if missing:
        raise CheckpointError(
            f"{where}: {_some_are(missing)} missing, of {len(specs)} tensors of "
            f"{architecture.name}.",
            hint="download the checkpoint again; a shard or an index entry may be missing.",
        )
    left = tensors.keys() - {spec.source for spec in specs} - dropped
    if left:
        raise CheckpointError(
            f"{where}: {_some_are(sorted(left))} left over; {architecture.name} has no such "
            "tensor.",
            hint="use the config.json that belongs to these weights.",
        )
    pairs = [Pair(spec, None if spec.source is None else tensors[spec.source]) for spec in specs]
    for pair in pairs:
        _check_shape(pair, where)
    return Pairing(h, tuple(pairs), tuple(notes))


def _settle_output(
    architecture: Architecture,
    h: HParams,
    tensors: Mapping[str, LazyTensor],
    tie_stated: bool,
    notes: list[str],
) -> tuple[HParams, set[str]]:
    """Decide whether the output is tied; returns also the name of a copy that is left out."""
    sources = {spec.role: spec.source for spec in architecture.tensors(replace(h, tied=False))}
    output, embed = sources[Role.OUTPUT], sources[Role.EMBED]
    if output is None or embed is None or embed not in tensors:
        return h, set()
    if output not in tensors:
        if h.tied or tie_stated:
            return h, set()
        notes.append(f"'{output}' is absent: the output reads the embedding")
        return replace(h, tied=True), set()
    if not h.tied:
        return h, set()
    if _are_equal(tensors[output], tensors[embed]):
        notes.append(f"'{output}' is a copy of '{embed}' and left out")
        return h, {output}
    notes.append(f"'{output}' is kept: the config calls it tied, but it differs from '{embed}'")
    return replace(h, tied=False), set()


def _are_equal(a: LazyTensor, b: LazyTensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return all(
        np.array_equal(a.read(*rows).view(np.uint8), b.read(*rows).view(np.uint8))
        for rows in chunks(a.shape)
    )


def _check_shape(pair: Pair, where: str) -> None:
    if pair.source is not None and pair.source.shape != pair.spec.shape:
        raise CheckpointError(
            f"{where}: '{pair.source.name}' has shape {pair.source.shape}, "
            f"but the config asks for {pair.spec.shape}.",
            hint="use the config.json that belongs to these weights.",
        )


def _some_are(names: Iterable[str]) -> str:
    quoted = [f"'{name}'" for name in names]
    return f"{some(quoted)} {'is' if len(quoted) == 1 else 'are'}"
