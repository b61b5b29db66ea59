"""Which type every tensor is to have so that a file of a given size loses least.

Formats are measured on samples of every tensor; their errors, weighed by each tensor's effect on
the model's output, are costs; the choice with the least sum is found under the budget. The
mathematics is in `model/sensitivity.py` and `model/allocation.py`.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from edgequant.blocks import BLOCK_TYPES, TensorInfo
from edgequant.errors import UnsupportedError
from edgequant.formats import Effort, names
from edgequant.model.allocation import Option, allocate, smallest
from edgequant.model.assignment import Assignment, decide, fit, in_order, is_tied, kind_of
from edgequant.model.overrides import check_overrides
from edgequant.model.recipes import ALIASES, RECIPES
from edgequant.model.sensitivity import sensitivities
from edgequant.model.tensors import Role
from edgequant.progress import Progress
from edgequant.stages.measure import Sample, Trial, fitting_formats, measure
from edgequant.stages.quantize_plan import Plan, Source, Wish, check_plan
from edgequant.stages.workers import Workers

_BLIND = (
    "Without an importance matrix all columns count alike, and all layers: a file of this size "
    "could lose less."
)
_GUESSED = 1024  # llama.cpp's mark of a file type that no one said


def plan_by_target(
    source: Source,
    wish: Wish,
    total: Callable[[Sequence[TensorInfo]], int],
    effort: Effort,
    workers: Workers,
    progress: Progress,
) -> Plan:
    """Choose the types with the least loss under a target: see `sensitivity` for what that is.

    Args:
        source: the model file.
        wish: with a target.
        total: bytes of all files that hold such tensors.
        effort: with which tensors will be encoded.
        workers: that measure.
        progress: is told of tensors.

    Raises:
        UnsupportedError: the target is below the smallest possible, or another wish cannot be
            fulfilled.
        GGUFError: a weight is not a finite number.
    """
    check_overrides(wish.overrides, source.quantizable, str(source.path))
    tied = is_tied(source.infos)
    decided = (decide(info, wish.overrides, tied=tied) for info in source.infos)
    fixed = {a.source.name: a for a in decided if a is not None}
    free = [info for info in in_order(source.infos) if info.name not in fixed]
    limit = wish.target_size
    if wish.target_bpw is not None:
        limit = int(wish.target_bpw * sum(info.weights for info in source.infos) / 8)
        total = _data_nbytes
    if limit is None:
        raise ValueError("a target is needed")

    def plan(formats: Mapping[str, str]) -> tuple[Assignment, ...]:
        return tuple(fixed.get(i.name) or fit(i, formats[i.name]) for i in in_order(source.infos))

    possible = {info.name: _formats(info, wish.overrides.among) for info in free}
    least = plan({name: formats[0] for name, formats in possible.items()})
    check_plan(source, wish, least)
    floor = total([a.info for a in least])
    if floor > limit:
        raise _too_small(source, wish, floor)
    writers = [a.source for a in fixed.values() if _writes(a.source)]
    trials = [_trial(source, info, ()) for info in writers]
    trials += [
        _trial(source, info, [name for name in possible[info.name] if name != info.type.name])
        for info in free
    ]
    samples = _measure(trials, effort, workers, progress)
    options = _options(source, possible, samples)
    notes = () if source.matrix is not None else (_BLIND,)
    budget = limit - floor + smallest(options)
    while True:  # heads and padding are no option's own, and more parts have more of them
        choice = allocate(options, budget)
        chosen = plan({name: option.format for name, option in choice.items()})
        excess = total([a.info for a in chosen]) - limit
        if excess <= 0:
            return Plan(_name(wish), _file_type(chosen), chosen, notes)
        used = sum(option.nbytes for option in choice.values())
        budget = max(smallest(options), used - excess)


def _data_nbytes(infos: Sequence[TensorInfo]) -> int:
    return sum(info.nbytes for info in infos)


def _formats(info: TensorInfo, among: Sequence[str]) -> list[str]:
    """Return what a tensor may become, the smallest first.

    What it is already is one of them, if a user does not say among which to choose. Where its rows
    fill none of those, it is as if nothing had been said.
    """
    formats = {name for name in among if info.columns % BLOCK_TYPES[name].weights == 0}
    formats = formats or {*fitting_formats(info.columns), info.type.name}
    return sorted(formats, key=lambda name: BLOCK_TYPES[name].bits_per_weight)


def _writes(info: TensorInfo) -> bool:
    """Tell whether it adds to the residual stream, so that its energy must be known in any case."""
    kind = kind_of(info.name)
    writes = kind in (Role.EMBED, Role.ATTN_OUTPUT, Role.FFN_DOWN)
    return writes and info.type.name in names(encoded=False)


def _trial(source: Source, info: TensorInfo, formats: Sequence[str]) -> Trial:
    importance = None if source.matrix is None else source.matrix.mean(info.name)
    where = f"{source.path}: '{info.name}'"
    return Trial(source.weights[info.name], formats, importance, where)


def _measure(
    trials: Sequence[Trial], effort: Effort, workers: Workers, progress: Progress
) -> dict[str, Sample]:
    """Measure, by tensor name; every trial finds the energy, whatever formats it names."""
    samples = {}
    progress.begin("measure formats", len(trials), "tensors")
    for trial, sample in workers.in_order(partial(measure, effort=effort), trials):
        samples[trial.weight.name] = sample
        progress.advance(1, trial.weight.name)
    progress.end()
    return samples


def _options(
    source: Source, possible: Mapping[str, Sequence[str]], samples: Mapping[str, Sample]
) -> dict[str, list[Option]]:
    """Turn relative errors into costs: noise in the model's output."""
    weighing = sensitivities(source.infos, _energies(source, samples))
    shapes = {info.name: info.shape for info in source.infos}
    return {
        name: [
            Option(
                fmt,
                TensorInfo(name, BLOCK_TYPES[fmt], shapes[name]).nbytes,
                weighing[name] * samples[name].errors.get(fmt, 0.0),
            )
            for fmt in formats
        ]
        for name, formats in possible.items()
    }


def _energies(source: Source, samples: Mapping[str, Sample]) -> dict[str, float]:
    """Return what is known of E|y|²: a row of the embedding, and what has importance."""
    known = {} if source.matrix is None else source.matrix.entries
    energies = {name: sample.energy for name, sample in samples.items() if name in known}
    for info in source.infos:
        if info.name in samples and kind_of(info.name) is Role.EMBED:
            energies[info.name] = samples[info.name].energy / info.rows
    return energies


def _too_small(source: Source, wish: Wish, floor: int) -> UnsupportedError:
    weights = sum(info.weights for info in source.infos)
    if wish.target_bpw is not None:
        least, asked = f"{8 * floor / weights:.3f} bits a weight", f"{wish.target_bpw}"
    else:
        least, asked = f"{floor:,} bytes", f"{wish.target_size:,}"
    return UnsupportedError(
        f"{source.path}: the smallest possible is {least}, more than the {asked} asked for.",
        hint="ask for more, or leave out what keeps tensors large, such as --keep-output.",
    )


def _name(wish: Wish) -> str:
    if wish.target_bpw is not None:
        return f"mix of at most {wish.target_bpw:g} bits per weight"
    return f"mix of at most {wish.target_size:,} bytes"


def _file_type(plan: Sequence[Assignment]) -> int:
    """Say what most weights are, which is how llama.cpp guesses it."""
    counts: Counter[str] = Counter()
    for a in plan:
        counts[a.type.name] += a.source.weights
    most = counts.most_common(1)[0][0]
    name = ALIASES.get(most, most)
    return RECIPES[name].file_type if name in RECIPES else _GUESSED
