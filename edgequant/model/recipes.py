"""Recipes such as Q4_K_M: which format each tensor of a model gets, as a table over roles.

The table says exactly what llama.cpp's quantizer says, so that a file of ours has the types that a
user of llama.cpp expects. A new mix is a new entry. It knows roles and a few sizes of a model; how
the rules meet a file's tensors is in `assignment.py`.

Source: src/llama-quant.cpp of llama.cpp 0c1e57098.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from edgequant.blocks import BLOCK_TYPES, TensorInfo
from edgequant.errors import UnsupportedError
from edgequant.model.tensors import Role


@dataclass(frozen=True)
class Sizes:
    """What recipes need to know of a model, also of an architecture that we cannot run."""

    architecture: str
    layers: int
    heads: int = 1
    heads_kv: int = 1
    experts: int = 0


@dataclass(frozen=True)
class Place:
    """Where a tensor stands among its like, and in which model: what a condition may look at.

    Attributes:
        index: how many tensors of this role came before; the layer, in a model with experts.
        count: how many there are: value tensors by number, feed-forward tensors by layers.
        sizes: the model's.
        imatrix: an importance matrix is given.
        info: the tensor itself.
    """

    index: int
    count: int
    sizes: Sizes
    imatrix: bool
    info: TensorInfo


Condition = Callable[[Place], bool]


@dataclass(frozen=True)
class Rule:
    """Tensors of `role`, or of any role, become `use` where every condition holds."""

    role: Role | None
    use: str
    when: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class Recipe:
    """A mix of formats.

    Attributes:
        name: as llama.cpp calls it.
        file_type: the value of general.file_type.
        default: the format of what no rule names.
        rules: the first that applies decides.
        output: the format of the output matrix, which a tied model keeps in the embedding.
        pure: what all become where no mix is wanted; None for the default.
        blind: a format that loses too much without importance: only the embedding and the output
            may have it then.
    """

    name: str
    file_type: int
    default: str
    rules: tuple[Rule, ...] = ()
    output: str = "Q6_K"
    pure: str | None = None
    blind: str | None = None

    @property
    def mixes(self) -> bool:
        """Its formats have blocks; F32, F16 and BF16 treat all tensors alike."""
        return BLOCK_TYPES[self.default].weights > 1


def more_bits(place: Place) -> bool:
    """The first and last eighth, and every third in between."""
    eighth = place.count // 8
    return (
        place.index < eighth
        or place.index >= 7 * place.count // 8
        or (place.index - eighth) % 3 == 2
    )


def first(number: int) -> Condition:
    """The first `number` of them."""
    return lambda place: place.index < number


def first_part(parts: int) -> Condition:
    """The first of so many equal parts of the layers."""
    return lambda place: place.index < place.count // parts


def falcon(place: Place) -> bool:
    """Falcon models have rules of their own."""
    return place.sizes.architecture == "falcon"


def not_falcon(place: Place) -> bool:
    """All other models."""
    return not falcon(place)


def eight_experts(place: Place) -> bool:
    """Mixtral and its kin: attention is a small part of the file, and worth its bits."""
    return place.sizes.experts == 8


def not_eight_experts(place: Place) -> bool:
    """Any other number of experts, or none."""
    return not eight_experts(place)


def like_70b(place: Place) -> bool:
    """The 80-layer models with shared value heads: those are small, and worth their bits."""
    sizes = place.sizes
    shared = sizes.architecture == "llama" and sizes.heads != sizes.heads_kv
    return sizes.layers == 80 and (shared or sizes.architecture == "qwen2")


def shared_by_four(place: Place) -> bool:
    """Four query heads or more share a value head, which makes values small."""
    return place.sizes.heads // max(1, place.sizes.heads_kv) >= 4


def stacked(place: Place) -> bool:
    """The tensor holds a matrix for each expert."""
    return prod(place.info.shape[:-2]) > 1


def with_imatrix(place: Place) -> bool:
    """An importance matrix is given."""
    return place.imatrix


def without_imatrix(place: Place) -> bool:
    """None is given."""
    return not place.imatrix


_V, _K, _OUT, _DOWN = Role.ATTN_V, Role.ATTN_K, Role.ATTN_OUTPUT, Role.FFN_DOWN
_EXPERTS = (Rule(_V, "Q8_0", (eight_experts,)), Rule(_K, "Q8_0", (eight_experts,)))
_EXPERTS_OUTPUT = (*_EXPERTS, Rule(_OUT, "Q5_K", (eight_experts, not_falcon)))
_IQ4 = (
    *_EXPERTS_OUTPUT,
    Rule(_V, "Q5_K", (shared_by_four,)),
    Rule(_DOWN, "Q5_K", (without_imatrix, first_part(8))),
)
_TERNARY = (*_EXPERTS, Rule(Role.EMBED, "Q4_K"))

RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("Q2_K", 10, "Q2_K", (
            *_EXPERTS_OUTPUT,
            Rule(_V, "Q5_K", (like_70b,)),
            Rule(_V, "Q4_K", (shared_by_four,)),
            Rule(_V, "Q3_K"),
            Rule(_OUT, "Q3_K", (not_falcon,)),
            Rule(_DOWN, "Q3_K"),
        )),
        Recipe("Q2_K_S", 21, "Q2_K", (
            *_EXPERTS,
            Rule(_V, "Q5_K", (shared_by_four, like_70b)),
            Rule(_V, "Q4_K", (shared_by_four,)),
            Rule(_DOWN, "Q4_K", (first_part(8),)),
        ), blind="Q2_K"),
        Recipe("Q3_K_S", 11, "Q3_K", (*_EXPERTS_OUTPUT, Rule(_V, "Q5_K", (like_70b,)))),
        Recipe("Q3_K_M", 12, "Q3_K", (
            *_EXPERTS_OUTPUT,
            Rule(_V, "Q5_K", (first(2),)),
            Rule(_V, "Q5_K", (like_70b,)),
            Rule(_V, "Q4_K"),
            Rule(_OUT, "Q4_K", (not_falcon,)),
            Rule(_DOWN, "Q5_K", (first_part(16),)),
            Rule(_DOWN, "Q4_K", (not_falcon,)),
            Rule(_DOWN, "Q4_K", (more_bits,)),
        )),
        Recipe("Q3_K_L", 13, "Q3_K", (
            *_EXPERTS,
            Rule(_V, "Q5_K"),
            Rule(_OUT, "Q4_K", (falcon,)),
            Rule(_OUT, "Q5_K", (not_eight_experts,)),
            Rule(_DOWN, "Q4_K", (falcon,)),
            Rule(_DOWN, "Q5_K"),
        )),
        Recipe("Q4_K_M", 15, "Q4_K", (
            *_EXPERTS_OUTPUT,
            Rule(_V, "Q6_K", (more_bits,)),
            Rule(_V, "Q5_K", (like_70b,)),
            Rule(_DOWN, "Q6_K", (falcon, first_part(16))),
            Rule(_DOWN, "Q5_K", (falcon, more_bits)),
            Rule(_DOWN, "Q6_K", (not_falcon, more_bits)),
        )),
        Recipe("Q4_K_S", 14, "Q4_K", (
            *_EXPERTS_OUTPUT,
            Rule(_V, "Q5_K", (first(4),)),
            Rule(_V, "Q5_K", (like_70b,)),
            Rule(_DOWN, "Q5_K", (not_falcon, first_part(8))),
        )),
        Recipe("Q5_K_M", 17, "Q5_K", (
            *_EXPERTS,
            Rule(_V, "Q6_K", (more_bits,)),
            Rule(_DOWN, "Q6_K", (more_bits,)),
        )),
        Recipe("Q5_K_S", 16, "Q5_K", _EXPERTS),
        Recipe("Q6_K", 18, "Q6_K", _EXPERTS),
        Recipe("Q8_0", 7, "Q8_0", _EXPERTS, output="Q8_0"),
        Recipe("Q4_0", 2, "Q4_0", (
            *_EXPERTS, Rule(_DOWN, "Q4_1", (with_imatrix, first_part(8))),
        )),
        Recipe("Q4_1", 3, "Q4_1", _EXPERTS),
        Recipe("Q5_0", 8, "Q5_0", (
            *_EXPERTS, Rule(_DOWN, "Q5_1", (with_imatrix, first_part(8))),
        )),
        Recipe("Q5_1", 9, "Q5_1", _EXPERTS),
        Recipe("IQ4_NL", 25, "IQ4_NL", _IQ4),
        Recipe("IQ4_XS", 30, "IQ4_XS", _IQ4),
        Recipe("MXFP4_MOE", 38, "Q8_0", (
            Rule(None, "MXFP4", (stacked,)),
        ), output="Q8_0", pure="MXFP4"),
        Recipe("TQ1_0", 36, "TQ1_0", _TERNARY),
        Recipe("TQ2_0", 37, "TQ2_0", _TERNARY),
        Recipe("F32", 0, "F32"),
        Recipe("F16", 1, "F16"),
        Recipe("BF16", 32, "BF16"),
    )
}  # fmt: skip

# What llama.cpp calls these for short.
ALIASES: Mapping[str, str] = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}

# What a tensor becomes whose rows are not whole blocks; what then still does not fit becomes F16.
FALLBACKS: Mapping[str, str] = {
    "Q2_K": "Q4_0", "Q3_K": "Q4_0", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0",
    "TQ1_0": "Q4_0", "TQ2_0": "Q4_0", "IQ4_XS": "IQ4_NL",
    "IQ2_XXS": "IQ4_NL", "IQ2_XS": "IQ4_NL", "IQ2_S": "IQ4_NL", "IQ3_XXS": "IQ4_NL",
    "IQ3_S": "IQ4_NL",
}  # fmt: skip
FALCON_OUTPUT = "Q8_0"
LAST_RESORT = "F16"


def find_recipe(name: str) -> Recipe:
    """Return a recipe by its name or alias, in any case.

    Raises:
        UnsupportedError: unknown; the hint lists those known.
    """
    upper = name.upper()
    recipe = RECIPES.get(ALIASES.get(upper, upper))
    if recipe is None:
        raise UnsupportedError(
            f"{name}: not a recipe that edgequant knows.",
            hint=f"use one of {', '.join((*RECIPES, *ALIASES))}.",
        )
    return recipe
