"""What `quantize` reports: every tensor's type, size and error, the totals, and what is odd."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgequant.errors import some
from edgequant.model.assignment import Assignment, kind_of
from edgequant.model.importance import ImportanceMatrix
from edgequant.model.tensors import Role, role_of
from edgequant.stages.loss import Loss
from edgequant.stages.quantize_plan import Plan
from edgequant.stages.recode import FLOAT_TYPES

_LISTED = 8  # names in a note, before "and N more"


@dataclass(frozen=True)
class WorstBlock:
    """The block in which a tensor lost most, by the (weighed) squared error.

    Attributes:
        row: of the tensor, its matrices one after the other.
        block: of the row; a type without blocks counts a row as one.
        rmse: root of its mean squared error, in the weights' unit.
        share: of the tensor's (weighed) squared error.
    """

    row: int
    block: int
    rmse: float
    share: float


@dataclass(frozen=True)
class QuantizedTensor:
    """One tensor of the output.

    Attributes:
        name: on disk.
        type: its format.
        bytes: of its data.
        rmse: root of the mean squared error, in the weights' unit; None in a dry run.
        weighted_rmse: the same weighed by importance; None without one.
        error: the (weighed) squared error over the (weighed) sum of squares; None in a dry run.
        source_type: its format in the input.
        fallback_from: the format that its rows are not whole blocks of.
        worst: its worst block; None in a dry run, and if nothing was lost.
        unseen_experts: of its matrices, how many saw no token, by the importance matrix.
        zero_importance: share of the other matrices' columns whose input was always zero, 0..1.
    """

    name: str
    type: str
    bytes: int
    rmse: float | None
    weighted_rmse: float | None
    error: float | None
    source_type: str
    fallback_from: str | None
    worst: WorstBlock | None
    unseen_experts: int
    zero_importance: float


@dataclass(frozen=True)
class QuantizedLayer:
    """The tensors of one layer together.

    Attributes:
        layer: from 0; None for the tensors outside of layers.
        bytes: of their data.
        error: mean of their errors, each counted as often as it has weights; None in a dry run.
    """

    layer: int | None
    bytes: int
    error: float | None


@dataclass(frozen=True)
class QuantizeReport:
    """What was made, or in a dry run would be.

    Attributes:
        recipe: its name.
        tensors: in file order.
        layers: in order, and last what is outside of them.
        weights: how many, in all tensors.
        bits_per_weight: 8 · bytes / weights.
        bytes: of all tensors' data.
        source_bytes: the same of the input.
        seconds: it took.
        threads: that worked.
        without_importance: quantized tensors that a given importance matrix does not cover.
        notes: what a user should know: fallbacks, rounding twice, missing importance, zeros.
        dry_run: nothing was written.
        files: that were written, or would be, if an output was named.
    """

    recipe: str
    tensors: tuple[QuantizedTensor, ...]
    layers: tuple[QuantizedLayer, ...]
    weights: int
    bits_per_weight: float
    bytes: int
    source_bytes: int
    seconds: float
    threads: int
    without_importance: tuple[str, ...]
    notes: tuple[str, ...]
    dry_run: bool
    files: tuple[str, ...]


@dataclass(frozen=True)
class Timing:
    """How long a run took, in seconds, on how many threads."""

    seconds: float
    threads: int


def make_report(
    made: Plan,
    matrix: ImportanceMatrix | None,
    losses: Mapping[str, Loss],
    timing: Timing,
    files: Sequence[Path] = (),
) -> QuantizeReport:
    """Sum up a run, or a dry one, which has no losses.

    Args:
        made: what was planned.
        matrix: the importance matrix, if one was given.
        losses: by tensor name; empty for a dry run.
        timing: of the run.
        files: of the output.
    """
    plan = made.assignments
    weights = sum(a.source.weights for a in plan)
    nbytes = sum(a.info.nbytes for a in plan)
    missing = () if matrix is None else tuple(_without_importance(plan, matrix))
    return QuantizeReport(
        recipe=made.name,
        tensors=tuple(_tensor(a, matrix, losses.get(a.source.name)) for a in plan),
        layers=tuple(_layers(plan, losses)),
        weights=weights,
        bits_per_weight=8 * nbytes / max(1, weights),
        bytes=nbytes,
        source_bytes=sum(a.source.nbytes for a in plan),
        seconds=timing.seconds,
        threads=timing.threads,
        without_importance=missing,
        notes=(
            *made.notes,
            *_notes_on_types(plan),
            *_notes_on_importance(plan, matrix, missing),
        ),
        dry_run=not losses,
        files=tuple(str(path) for path in files),
    )


def _tensor(a: Assignment, matrix: ImportanceMatrix | None, loss: Loss | None) -> QuantizedTensor:
    entry = None if matrix is None else matrix.entries.get(a.source.name)
    return QuantizedTensor(
        name=a.source.name,
        type=a.type.name,
        bytes=a.info.nbytes,
        rmse=None if loss is None else loss.rmse,
        weighted_rmse=loss.weighted_rmse if loss is not None and entry is not None else None,
        error=None if loss is None else loss.error,
        source_type=a.source.type.name,
        fallback_from=a.fallback_from,
        worst=None if loss is None else _worst(loss),
        unseen_experts=0 if entry is None else entry.unseen,
        zero_importance=0.0 if entry is None else entry.zero_share,
    )


def _layers(plan: Sequence[Assignment], losses: Mapping[str, Loss]) -> Iterator[QuantizedLayer]:
    groups: dict[int | None, list[Assignment]] = {}
    for a in plan:
        groups.setdefault(role_of(a.source.name)[1], []).append(a)
    for layer in sorted(groups, key=lambda n: (n is None, n)):
        group = groups[layer]
        errors = [losses[a.source.name].error * a.source.weights for a in group if losses]
        yield QuantizedLayer(
            layer=layer,
            bytes=sum(a.info.nbytes for a in group),
            error=sum(errors) / sum(a.source.weights for a in group) if losses else None,
        )


def _worst(loss: Loss) -> WorstBlock | None:
    if loss.worst is None:
        return None
    rmse = (loss.worst.squared / loss.worst.weights) ** 0.5
    return WorstBlock(loss.worst.row, loss.worst.block, rmse, loss.worst.weighted / loss.weighted)


def _without_importance(plan: Sequence[Assignment], matrix: ImportanceMatrix) -> Iterator[str]:
    """Yield what should have an entry; the embedding and the output seldom have one."""
    for a in plan:
        name = a.source.name
        expected = a.type.weights > 1 and kind_of(name) not in (Role.EMBED, Role.OUTPUT)
        if expected and name not in matrix.entries:
            yield name


def _notes_on_types(plan: Sequence[Assignment]) -> Iterator[str]:
    odd = [a for a in plan if a.fallback_from]
    if odd:
        share = sum(a.source.weights for a in odd) / sum(a.source.weights for a in plan)
        named = [
            f"{a.source.name} ({a.source.columns} columns: {a.type.name}, not {a.fallback_from})"
            for a in odd
        ]
        yield (
            f"{len(odd):,} tensors ({share:.1%} of the weights) have rows that are not whole "
            f"blocks of the recipe's format: {', '.join(named)}."  # each: nothing falls back unseen
        )
    again = [f"{a.source.name} ({a.source.type.name})" for a in plan
             if a.type != a.source.type and a.source.type.name not in FLOAT_TYPES]  # fmt: skip
    if again:
        yield f"Quantized already, and rounded a second time: {some(again, _LISTED)}."


def _notes_on_importance(
    plan: Sequence[Assignment], matrix: ImportanceMatrix | None, missing: Sequence[str]
) -> Iterator[str]:
    if matrix is None:
        return
    if missing:
        yield f"{len(missing):,} tensors have no importance: {some(missing, _LISTED)}."
    quantized = (a.source.name for a in plan if a.type.weights > 1)
    entries = [(name, matrix.entries[name]) for name in quantized if name in matrix.entries]
    unseen = [f"{n} ({e.unseen} of {len(e.counts)})" for n, e in entries if e.unseen]
    if unseen:
        yield f"Experts that saw no token weigh all columns alike: {some(unseen, _LISTED)}."
    zero = [f"{n} ({e.zero_share:.1%})" for n, e in entries if e.zero_share]
    if zero:
        yield f"Columns whose input was always zero have no importance: {some(zero, _LISTED)}."
