"""Which type every tensor of a model file is to have, as a user and a recipe say.

Every wish that the file cannot fulfil is refused here, before the first byte is written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgequant.blocks import TensorInfo, Weights
from edgequant.errors import ImatrixError, UnsupportedError, some
from edgequant.formats import names
from edgequant.model.assignment import Assignment, assign, is_quantized, kind_of, read_sizes
from edgequant.model.importance import ImportanceMatrix
from edgequant.model.overrides import NOTHING, Overrides, check_overrides
from edgequant.model.recipes import find_recipe
from edgequant.model.rules import Recipe
from edgequant.model.tensors import Role
from edgequant.stages.recode import FLOAT_TYPES


@dataclass(frozen=True)
class Wish:
    """What a user wants of the types; a recipe or one of the targets, and not two of them.

    Attributes:
        type: a recipe's name.
        target_size: bytes that the file, or its parts together, may have.
        target_bpw: bits that a weight may take, on average over all tensors.
        overrides: for some tensors, or all.
        allow_requantize: tensors that are quantized already may be rounded again.
        strict: a tensor whose rows do not fit a recipe's format is an error.
    """

    type: str | None = None
    target_size: int | None = None
    target_bpw: float | None = None
    overrides: Overrides = NOTHING
    allow_requantize: bool = False
    strict: bool = False


@dataclass(frozen=True)
class Plan:
    """What is to be made.

    Attributes:
        name: the recipe's, or the target.
        file_type: the value of general.file_type.
        assignments: of all tensors, in the file's order.
        notes: what a user should know of how it was made.
    """

    name: str
    file_type: int
    assignments: tuple[Assignment, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """The model file that is to be quantized.

    Attributes:
        path: of it.
        weights: its tensors.
        infos: all of these.
        keys: its keys, as plain values.
        matrix: the importance matrix, if there is one.
    """

    path: Path
    weights: Weights
    infos: Sequence[TensorInfo]
    keys: Mapping[str, object]
    matrix: ImportanceMatrix | None

    @property
    def quantizable(self) -> list[TensorInfo]:
        """The tensors whose type can be chosen."""
        return [info for info in self.infos if is_quantized(info)]


def check_wish(wish: Wish) -> Recipe | None:
    """Check what can be checked without the model; returns the recipe, None for a target.

    Raises:
        UnsupportedError: an unknown recipe, no goal or two, a target that is no number of bits.
    """
    goals = {
        "--type": wish.type,
        "--target-size": wish.target_size,
        "--target-bpw": wish.target_bpw,
    }
    given = [name for name, value in goals.items() if value is not None]
    if len(given) != 1:
        raise UnsupportedError(
            f"{' and '.join(given) or 'no type'}: one of {', '.join(goals)} decides the types.",
            hint="give exactly one of them, such as --type Q4_K_M.",
        )
    if wish.type is not None:
        if wish.overrides.among:
            raise UnsupportedError(
                f"--target-formats: --type {wish.type} decides the formats itself.",
                hint="leave out one of them, or give a target such as --target-bpw 4.8.",
            )
        return find_recipe(wish.type)
    if wish.overrides.pure:
        raise UnsupportedError(
            f"{given[0]}: --pure asks for one format, and a target for many.",
            hint="leave out --pure, or give a --type.",
        )
    if wish.target_bpw is not None and not 0 < wish.target_bpw <= 64:
        raise UnsupportedError(
            f"--target-bpw {wish.target_bpw}: not a number of bits between 0 and 64.",
            hint="ask for something like 4.8.",
        )
    return None


def plan_by_recipe(source: Source, wish: Wish, recipe: Recipe) -> Plan:
    """Give every tensor the type that a recipe and the overrides say.

    Raises:
        UnsupportedError: what the model cannot fulfil.
        ImatrixError: the recipe needs importance that is not there.
    """
    check_overrides(wish.overrides, source.quantizable, str(source.path))
    sizes = read_sizes(source.keys, source.infos)
    plan = assign(
        recipe, source.infos, sizes, imatrix=source.matrix is not None, overrides=wish.overrides
    )
    check_plan(source, wish, plan)
    _check_importance(source, recipe, plan)
    return Plan(recipe.name, recipe.file_type, plan)


def check_plan(source: Source, wish: Wish, plan: Sequence[Assignment]) -> None:
    """Refuse what cannot be decoded or encoded, a second rounding, and in strict a fallback.

    Raises:
        UnsupportedError: names the tensor and both types.
    """
    readable, writable = names(encoded=False), names()
    for a in plan:
        if a.type == a.source.type:
            continue
        if a.type.name not in writable:
            raise UnsupportedError(
                f"{source.path}: '{a.source.name}' would become {a.type.name}, which edgequant "
                "cannot write.",
                hint=f"use one of {', '.join(writable)}.",
            )
        if a.source.type.name not in readable:
            raise UnsupportedError(
                f"{source.path}: '{a.source.name}' is {a.source.type.name} and would become "
                f"{a.type.name}; edgequant cannot decode it.",
                hint="start from the F16 or BF16 file that edgequant convert writes.",
            )
        if a.source.type.name not in FLOAT_TYPES and not wish.allow_requantize:
            raise UnsupportedError(
                f"{source.path}: '{a.source.name}' is {a.source.type.name} and would become "
                f"{a.type.name}; rounding twice loses more than once.",
                hint="start from the F16 or BF16 file that edgequant convert writes, or pass "
                "--allow-requantize.",
            )
    odd = [f"{a.source.name} ({a.source.columns} columns, {a.fallback_from} -> {a.type.name})"
           for a in plan if a.fallback_from]  # fmt: skip
    if odd and wish.strict:
        raise UnsupportedError(
            f"{source.path}: rows of {len(odd):,} tensors are not whole blocks: {some(odd, 8)}.",
            hint="leave out --strict, or choose a --type with smaller blocks, such as Q8_0.",
        )


def _check_importance(source: Source, recipe: Recipe, plan: Sequence[Assignment]) -> None:
    entries = {} if source.matrix is None else source.matrix.entries
    blind = [
        a
        for a in plan
        if a.type.name in recipe.blind
        and a.type != a.source.type
        and kind_of(a.source.name) not in (Role.EMBED, Role.OUTPUT)
        and a.source.name not in entries
    ]
    if blind:
        raise ImatrixError(
            f"{source.path}: {recipe.name} makes {len(blind):,} tensors {blind[0].type.name} whose "
            f"importance is not known: {some([a.source.name for a in blind])}.",
            hint="make an importance matrix with edgequant imatrix and name it with --imatrix, or "
            f"choose --type {recipe.default}.",
        )
