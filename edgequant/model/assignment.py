"""How a recipe meets a file: each tensor's type, in llama.cpp's order, from its name and shape.

It reads names and keys, so that files of architectures we cannot run are quantized too; it touches
no weights.

Source: src/llama-quant.cpp of llama.cpp 0c1e57098: order, counters, fallbacks, what is left alone.
Differs: a row that is not whole blocks of Q8_0 or Q4_0 stops llama.cpp; here such a tensor becomes
F16, and is listed like every other fallback. A tied embedding is the output matrix for what a user
says of that, too.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgequant.blocks import BLOCK_TYPES, BlockType, TensorInfo
from edgequant.model.overrides import NOTHING, Overrides
from edgequant.model.recipes import FALLBACKS, LAST_RESORT, SAFE_OUTPUT
from edgequant.model.rules import Place, Recipe, Sizes, falcon
from edgequant.model.tensors import Role, role_of


def read_sizes(keys: Mapping[str, object], tensors: Sequence[TensorInfo]) -> Sizes:
    """Read the sizes from a file's keys (plain values); what is absent is inferred or 1."""
    name = str(keys.get("general.architecture", ""))
    seen = {layer for layer in (role_of(t.name)[1] for t in tensors) if layer is not None}
    heads = _first(keys.get(f"{name}.attention.head_count"), 1)
    return Sizes(
        architecture=name,
        layers=_first(keys.get(f"{name}.block_count"), len(seen)),
        heads=heads,
        heads_kv=_first(keys.get(f"{name}.attention.head_count_kv"), heads),
        experts=_first(keys.get(f"{name}.expert_count"), 0),
    )


def _first(value: object, default: int) -> int:
    """Take a whole number, or the first of a list with one a layer."""
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        value = value[0]
    return value if isinstance(value, int) and value > 0 else default


# What is small and delicate stays in its source type; parts of names, beside all norms.
_LEFT_ALONE = (
    "_norm.weight", "ffn_gate_inp.weight", "ffn_gate_tid2eid.weight", "altup", "laurel",
    "per_layer_model_proj", "ssm_conv1d", "shortconv.conv.weight", "indexer.k_proj.weight",
    "indexer.q_proj.weight", "attn_rel_b.weight", ".position_embd", "sam.pos_embd", "sam.neck.",
    "sam.net_", ".rel_pos", ".patch_embd", ".patch_merger", "a.rvq.codebook", "mm.a.code_embd",
    "time_mix_first.weight", "time_mix_w0.weight", "time_mix_w1.weight", "time_mix_w2.weight",
    "time_mix_v0.weight", "time_mix_v1.weight", "time_mix_v2.weight", "time_mix_a0.weight",
    "time_mix_a1.weight", "time_mix_a2.weight", "time_mix_g1.weight", "time_mix_g2.weight",
    "time_mix_decay_w1.weight", "time_mix_decay_w2.weight", "time_mix_lerp_fused.weight",
)  # fmt: skip
_LEFT_ALONE_EXACTLY = ("position_embd.weight", "token_types.weight")

# Which role's rules a role obeys, where it is not its own.
_OBEYS: Mapping[Role, Role] = {
    Role.ATTN_QKV: Role.ATTN_V,
    Role.FFN_DOWN_EXPERTS: Role.FFN_DOWN,
    Role.FFN_GATE_EXPERTS: Role.FFN_GATE,
    Role.FFN_UP_EXPERTS: Role.FFN_UP,
}
# The same for stems that have no role of ours: the first part of a name that is found decides.
_STEMS = (
    ("attn_qkv.weight", Role.ATTN_V), ("attn_kv_b.weight", Role.ATTN_V),
    ("attn_v.weight", Role.ATTN_V), ("attn_k.weight", Role.ATTN_K),
    ("attn_q.weight", Role.ATTN_Q), ("attn_output.weight", Role.ATTN_OUTPUT),
    ("ffn_up", Role.FFN_UP), ("ffn_gate", Role.FFN_GATE), ("ffn_down", Role.FFN_DOWN),
)  # fmt: skip


def kind_of(name: str) -> Role:
    """Return the role whose rules a weight obeys: experts and fused ones follow the plain ones.

    Biases are `Role.OTHER`: they have a role, but they are not counted among its weights.
    """
    if not name.endswith(".weight"):
        return Role.OTHER
    role, _ = role_of(name)
    if role is Role.OTHER:
        if name == "per_layer_token_embd.weight":
            return Role.EMBED
        return next((kind for stem, kind in _STEMS if stem in name), Role.OTHER)
    return _OBEYS.get(role, role)


def is_quantized(info: TensorInfo) -> bool:
    """Tell whether recipes choose this tensor's format; all others keep the one they have."""
    if not any(length > 1 for length in info.shape[:-1]) or not info.name.endswith("weight"):
        return False
    return info.name not in _LEFT_ALONE_EXACTLY and not any(p in info.name for p in _LEFT_ALONE)


@dataclass(frozen=True)
class Assignment:
    """A tensor and the type it is to have.

    Attributes:
        source: as it is in the input.
        type: what it becomes; equal to the source's for what is copied.
        fallback_from: the format the recipe wanted, where the rows are not whole blocks of it.
    """

    source: TensorInfo
    type: BlockType
    fallback_from: str | None = None

    @property
    def info(self) -> TensorInfo:
        """The tensor of the output."""
        return TensorInfo(self.source.name, self.type, self.source.shape)


def assign(
    recipe: Recipe,
    tensors: Sequence[TensorInfo],
    sizes: Sizes,
    *,
    imatrix: bool,
    overrides: Overrides = NOTHING,
) -> tuple[Assignment, ...]:
    """Give every tensor its type.

    Args:
        recipe: the mix.
        tensors: all of the model's, in any order.
        sizes: the model's.
        imatrix: an importance matrix is given, which some recipes make use of.
        overrides: what a user says of some tensors, or of all. A tensor chosen by name is not
            counted among those that came before, as in llama.cpp.

    Returns:
        One assignment a tensor, in llama.cpp's order: by layer, those without one first, then name.
    """
    tied = is_tied(tensors)
    values = sum(kind_of(t.name) is Role.ATTN_V for t in tensors)
    seen: Counter[Role] = Counter()
    plan = []
    for info in in_order(tensors):
        decided = decide(info, overrides, tied=tied)
        if decided is None and overrides.pure:
            decided = fit(info, recipe.pure or recipe.default)
        if decided is not None:
            plan.append(decided)
            continue
        kind = kind_of(info.name)
        index = seen[kind]
        seen[kind] += 1
        layer = role_of(info.name)[1]
        if sizes.experts > 1 and kind is not Role.ATTN_V and layer is not None:
            index = layer
        count = values if kind is Role.ATTN_V else sizes.layers
        place = Place(index, count, sizes, imatrix, info)
        if is_output(info, tied=tied):
            kind = Role.OUTPUT
        plan.append(fit(info, _choose(recipe, kind, place), output=kind is Role.OUTPUT))
    return tuple(plan)


def decide(info: TensorInfo, overrides: Overrides, *, tied: bool) -> Assignment | None:
    """Decide what no mix decides: what is left alone, and what a user names; None for the rest."""
    output = is_output(info, tied=tied)
    if not is_quantized(info) or (output and overrides.keep_output):
        return Assignment(info, info.type)
    said = overrides.choose(info.name, embed=kind_of(info.name) is Role.EMBED, output=output)
    return None if said is None else fit(info, said)


def is_output(info: TensorInfo, *, tied: bool) -> bool:
    """Tell whether it is the output matrix; a tied embedding is."""
    kind = kind_of(info.name)
    return kind is Role.OUTPUT or (kind is Role.EMBED and tied)


def is_tied(tensors: Sequence[TensorInfo]) -> bool:
    """Tell whether the embedding is the output matrix, too."""
    return all(t.name != "output.weight" for t in tensors)


def in_order(tensors: Sequence[TensorInfo]) -> list[TensorInfo]:
    """Sort by layer, those without one first, then name: llama.cpp's order of a file."""
    return sorted(tensors, key=_order)


def _order(info: TensorInfo) -> tuple[int, bytes]:
    layer = role_of(info.name)[1]
    return (-1 if layer is None else layer, info.name.encode("utf-8", "surrogateescape"))


def _choose(recipe: Recipe, kind: Role, place: Place) -> str:
    if not recipe.mixes:
        return recipe.default
    if kind is Role.OUTPUT:
        return SAFE_OUTPUT if falcon(place) else recipe.output
    for rule in recipe.rules:
        if rule.role in (kind, None) and all(holds(place) for holds in rule.when):
            return rule.use
    return recipe.default


def fit(info: TensorInfo, wanted: str, *, output: bool = False) -> Assignment:
    """Give a tensor a format, or the next down the ladder whose blocks its rows fill.

    An output matrix that a recipe gave its format has a ladder of its own.
    """
    next_best = SAFE_OUTPUT if output else FALLBACKS.get(wanted, LAST_RESORT)
    ladder = (wanted, next_best, LAST_RESORT)
    use = next(name for name in ladder if info.columns % BLOCK_TYPES[name].weights == 0)
    return Assignment(info, BLOCK_TYPES[use], wanted if use != wanted else None)
