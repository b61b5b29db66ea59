"""What `quantize` reports: every tensor's type, size and error, the totals, and what is odd."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from edgequant.errors import some
from edgequant.model.assignment import Assignment, kind_of
from edgequant.model.importance import ImportanceMatrix
from edgequant.model.tensors import Role
from edgequant.stages.recode import Loss

_LISTED = 8  # names in a note, before "and N more"


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
    """

    name: str
    type: str
    bytes: int
    rmse: float | None
    weighted_rmse: float | None
    error: float | None
    source_type: str
    fallback_from: str | None


@dataclass(frozen=True)
class QuantizeReport:
    """What was made, or in a dry run would be.

    Attributes:
        recipe: its name.
        tensors: in file order.
        weights: how many, in all tensors.
        bits_per_weight: 8 · bytes / weights.
        bytes: of all tensors' data.
        source_bytes: the same of the input.
        seconds: it took.
        threads: that worked.
        without_importance: quantized tensors that a given importance matrix does not cover.
        notes: what a user should know: fallbacks, missing importance, zeros, clipping.
        dry_run: nothing was written.
    """

    recipe: str
    tensors: tuple[QuantizedTensor, ...]
    weights: int
    bits_per_weight: float
    bytes: int
    source_bytes: int
    seconds: float
    threads: int
    without_importance: tuple[str, ...]
    notes: tuple[str, ...]
    dry_run: bool


@dataclass(frozen=True)
class Timing:
    """How long a run took, in seconds, on how many threads."""

    seconds: float
    threads: int


def make_report(
    recipe: str,
    plan: Sequence[Assignment],
    matrix: ImportanceMatrix | None,
    losses: Mapping[str, Loss],
    timing: Timing,
) -> QuantizeReport:
    """Sum up a run, or a dry one, which has no losses.

    Args:
        recipe: its name.
        plan: of all tensors.
        matrix: the importance matrix, if one was given.
        losses: by tensor name; empty for a dry run.
        timing: of the run.
    """
    weights = sum(a.source.weights for a in plan)
    nbytes = sum(a.info.nbytes for a in plan)
    missing = () if matrix is None else tuple(_without_importance(plan, matrix))
    return QuantizeReport(
        recipe=recipe,
        tensors=tuple(_tensor(a, matrix, losses.get(a.source.name)) for a in plan),
        weights=weights,
        bits_per_weight=8 * nbytes / max(1, weights),
        bytes=nbytes,
        source_bytes=sum(a.source.nbytes for a in plan),
        seconds=timing.seconds,
        threads=timing.threads,
        without_importance=missing,
        notes=(*_notes_on_types(plan, losses), *_notes_on_importance(plan, matrix, missing)),
        dry_run=not losses,
    )


def _tensor(a: Assignment, matrix: ImportanceMatrix | None, loss: Loss | None) -> QuantizedTensor:
    weighed = matrix is not None and a.source.name in matrix.entries
    return QuantizedTensor(
        name=a.source.name,
        type=a.type.name,
        bytes=a.info.nbytes,
        rmse=None if loss is None else loss.rmse,
        weighted_rmse=loss.weighted_rmse if loss is not None and weighed else None,
        error=None if loss is None else loss.error,
        source_type=a.source.type.name,
        fallback_from=a.fallback_from,
    )


def _without_importance(plan: Sequence[Assignment], matrix: ImportanceMatrix) -> Iterator[str]:
    """Yield what should have an entry; the embedding and the output seldom have one."""
    for a in plan:
        name = a.source.name
        expected = a.type.weights > 1 and kind_of(name) not in (Role.EMBED, Role.OUTPUT)
        if expected and name not in matrix.entries:
            yield name


def _notes_on_types(plan: Sequence[Assignment], losses: Mapping[str, Loss]) -> Iterator[str]:
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
    clipped = [f"{name} ({loss.clipped:,})" for name, loss in losses.items() if loss.clipped]
    if clipped:
        yield f"Weights beyond F16's largest number were held there: {some(clipped, _LISTED)}."


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
