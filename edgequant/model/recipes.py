"""Recipes such as Q4_K_M: which format each tensor of a model gets, as a table over roles.

The table says exactly what llama.cpp's quantizer says, so that a file of ours has the types that a
user of llama.cpp expects. A new mix is a new entry. How the rules meet a file's tensors is in
`assignment.py`.

Source: src/llama-quant.cpp of llama.cpp 0c1e57098.
"""

from collections.abc import Mapping

from edgequant.errors import UnsupportedError
from edgequant.model.grid_recipes import GRID_RECIPES
from edgequant.model.rules import (
    EXPERTS,
    EXPERTS_OUTPUT,
    Recipe,
    Rule,
    falcon,
    first,
    first_part,
    like_70b,
    more_bits,
    not_eight_experts,
    not_falcon,
    shared_by_four,
    stacked,
    with_imatrix,
    without_imatrix,
)
from edgequant.model.tensors import Role

_V, _OUT, _DOWN = Role.ATTN_V, Role.ATTN_OUTPUT, Role.FFN_DOWN
_IQ4 = (
    *EXPERTS_OUTPUT,
    Rule(_V, "Q5_K", (shared_by_four,)),
    Rule(_DOWN, "Q5_K", (without_imatrix, first_part(8))),
)
_TERNARY = (*EXPERTS, Rule(Role.EMBED, "Q4_K"))

RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("Q2_K", 10, "Q2_K", (
            *EXPERTS_OUTPUT,
            Rule(_V, "Q5_K", (like_70b,)),
            Rule(_V, "Q4_K", (shared_by_four,)),
            Rule(_V, "Q3_K"),
            Rule(_OUT, "Q3_K", (not_falcon,)),
            Rule(_DOWN, "Q3_K"),
        )),
        Recipe("Q2_K_S", 21, "Q2_K", (
            *EXPERTS,
            Rule(_V, "Q5_K", (shared_by_four, like_70b)),
            Rule(_V, "Q4_K", (shared_by_four,)),
            Rule(_DOWN, "Q4_K", (first_part(8),)),
        ), blind=("Q2_K",)),
        Recipe("Q3_K_S", 11, "Q3_K", (*EXPERTS_OUTPUT, Rule(_V, "Q5_K", (like_70b,)))),
        Recipe("Q3_K_M", 12, "Q3_K", (
            *EXPERTS_OUTPUT,
            Rule(_V, "Q5_K", (first(2),)),
            Rule(_V, "Q5_K", (like_70b,)),
            Rule(_V, "Q4_K"),
            Rule(_OUT, "Q4_K", (not_falcon,)),
            Rule(_DOWN, "Q5_K", (first_part(16),)),
            Rule(_DOWN, "Q4_K", (not_falcon,)),
            Rule(_DOWN, "Q4_K", (more_bits,)),
        )),
        Recipe("Q3_K_L", 13, "Q3_K", (
            *EXPERTS,
            Rule(_V, "Q5_K"),
            Rule(_OUT, "Q4_K", (falcon,)),
            Rule(_OUT, "Q5_K", (not_eight_experts,)),
            Rule(_DOWN, "Q4_K", (falcon,)),
            Rule(_DOWN, "Q5_K"),
        )),
        Recipe("Q4_K_M", 15, "Q4_K", (
            *EXPERTS_OUTPUT,
            Rule(_V, "Q6_K", (more_bits,)),
            Rule(_V, "Q5_K", (like_70b,)),
            Rule(_DOWN, "Q6_K", (falcon, first_part(16))),
            Rule(_DOWN, "Q5_K", (falcon, more_bits)),
            Rule(_DOWN, "Q6_K", (not_falcon, more_bits)),
        )),
        Recipe("Q4_K_S", 14, "Q4_K", (
            *EXPERTS_OUTPUT,
            Rule(_V, "Q5_K", (first(4),)),
            Rule(_V, "Q5_K", (like_70b,)),
            Rule(_DOWN, "Q5_K", (not_falcon, first_part(8))),
        )),
        Recipe("Q5_K_M", 17, "Q5_K", (
            *EXPERTS,
            Rule(_V, "Q6_K", (more_bits,)),
            Rule(_DOWN, "Q6_K", (more_bits,)),
        )),
        Recipe("Q5_K_S", 16, "Q5_K", EXPERTS),
        Recipe("Q6_K", 18, "Q6_K", EXPERTS),
        Recipe("Q8_0", 7, "Q8_0", EXPERTS, output="Q8_0"),
        Recipe("Q4_0", 2, "Q4_0", (
            *EXPERTS, Rule(_DOWN, "Q4_1", (with_imatrix, first_part(8))),
        )),
        Recipe("Q4_1", 3, "Q4_1", EXPERTS),
        Recipe("Q5_0", 8, "Q5_0", (
            *EXPERTS, Rule(_DOWN, "Q5_1", (with_imatrix, first_part(8))),
        )),
        Recipe("Q5_1", 9, "Q5_1", EXPERTS),
        Recipe("IQ4_NL", 25, "IQ4_NL", _IQ4),
        Recipe("IQ4_XS", 30, "IQ4_XS", _IQ4),
        *GRID_RECIPES,
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
SAFE_OUTPUT = "Q8_0"  # of Falcon models, and where rows do not fill the blocks of a recipe's
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
