"""The recipes of IQ2 and IQ3 formats; see `recipes.py`.

Source: src/llama-quant.cpp of llama.cpp 0c1e57098.
"""

from edgequant.model.rules import (
    EXPERTS_OUTPUT,
    Recipe,
    Rule,
    eight_experts,
    first_part,
    four_experts,
    middle,
    more_bits,
    shared_by_four,
    without_imatrix,
)
from edgequant.model.tensors import Role

_Q, _K, _V, _OUT = Role.ATTN_Q, Role.ATTN_K, Role.ATTN_V, Role.ATTN_OUTPUT
_GATE, _UP, _DOWN = Role.FFN_GATE, Role.FFN_UP, Role.FFN_DOWN
_TWO_BITS = ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS")  # what needs importance


def _two_bits(name: str, file_type: int, default: str, better: str, out: str) -> Recipe:
    """Values, the first eighth of the down projections and the embedding are `better`."""
    return Recipe(name, file_type, default, (
        Rule(_V, "Q4_K", (shared_by_four,)),
        Rule(_V, "Q4_K", (four_experts,)),
        Rule(_V, better),
        Rule(_K, "Q4_K", (eight_experts,)),
        Rule(_DOWN, better, (first_part(8),)),
        Rule(_OUT, "Q5_K", (eight_experts,)),
        Rule(_OUT, out),
        Rule(Role.EMBED, better),
    ), output="Q5_K", blind=_TWO_BITS)  # fmt: skip


GRID_RECIPES = (
    _two_bits("IQ2_XXS", 19, "IQ2_XXS", "Q2_K", "IQ2_XXS"),
    _two_bits("IQ2_XS", 20, "IQ2_XS", "Q2_K", "IQ2_XS"),
    _two_bits("IQ2_S", 28, "IQ2_XS", "IQ3_S", "IQ3_S"),
    _two_bits("IQ2_M", 29, "IQ2_S", "IQ3_S", "IQ3_S"),
    Recipe("IQ3_XXS", 23, "IQ3_XXS", (
        *EXPERTS_OUTPUT,
        Rule(_V, "Q4_K", (shared_by_four,)),
        Rule(_V, "IQ3_S", (without_imatrix,)),
        Rule(_Q, "IQ2_S"),
        Rule(_K, "IQ2_S"),
        Rule(_OUT, "IQ3_S"),
        Rule(_DOWN, "Q4_K", (without_imatrix, first_part(8))),
        Rule(_DOWN, "Q3_K", (without_imatrix,)),
        Rule(Role.EMBED, "IQ3_S"),
    ), output="Q5_K", blind=_TWO_BITS),
    Recipe("IQ3_XS", 22, "IQ3_S", (
        *EXPERTS_OUTPUT,
        Rule(_V, "Q4_K", (shared_by_four,)),
        Rule(_Q, "IQ3_XXS"),
        Rule(_K, "IQ3_XXS"),
        Rule(_GATE, "IQ3_XXS", (middle,)),
        Rule(_UP, "IQ3_XXS", (middle,)),
    ), blind=_TWO_BITS),
    Recipe("IQ3_S", 26, "IQ3_S", (*EXPERTS_OUTPUT, Rule(_V, "Q4_K", (shared_by_four,)))),
    Recipe("IQ3_M", 27, "IQ3_S", (
        *EXPERTS_OUTPUT,
        Rule(_V, "Q4_K"),
        Rule(_OUT, "Q4_K"),
        Rule(_DOWN, "Q4_K", (first_part(8),)),
        Rule(_DOWN, "Q4_K", (eight_experts, more_bits)),
    )),
)  # fmt: skip
