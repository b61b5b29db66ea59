"""What a mix of formats is: rules over roles, under conditions on a tensor's place in the model.

It knows roles and a few sizes of a model; how the rules meet a file's tensors is in
`assignment.py`, and what the mixes are in `recipes.py` and `grid_recipes.py`.

Source: src/llama-quant.cpp of llama.cpp 0c1e57098.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from edgequant.blocks import BLOCK_TYPES, TensorInfo
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
        blind: formats that lose too much without importance: only the embedding and the output
            may have them then.
    """

    name: str
    file_type: int
    default: str
    rules: tuple[Rule, ...] = ()
    output: str = "Q6_K"
    pure: str | None = None
    blind: tuple[str, ...] = ()

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


def middle(place: Place) -> bool:
    """All but the first and last eighth."""
    return place.count // 8 <= place.index < 7 * place.count // 8


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


def four_experts(place: Place) -> bool:
    """Four experts or more."""
    return place.sizes.experts >= 4


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


EXPERTS = (
    Rule(Role.ATTN_V, "Q8_0", (eight_experts,)),
    Rule(Role.ATTN_K, "Q8_0", (eight_experts,)),
)
EXPERTS_OUTPUT = (*EXPERTS, Rule(Role.ATTN_OUTPUT, "Q5_K", (eight_experts, not_falcon)))
