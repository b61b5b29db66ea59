"""Kernel `rotate_store`: norm, rotate and store heads; RotateStore, Rope and StoreKV launch it."""

from collections.abc import Sequence
from dataclasses import dataclass

from edgequant.blocks import BlockType
from edgequant.errors import UnsupportedError
from edgequant.graph.kernels.attention import check_head_dim
from edgequant.graph.launch import Arguments, Call, Kind, Launch, Operand

ARGUMENTS = Arguments(
    "RotateStoreArgs",
    (
        ("queries", "float"),
        ("keys", "float"),
        ("values", "float"),
        ("query_norm", "float"),
        ("key_norm", "float"),
        ("frequencies", "float"),
        ("factors", "float"),
        ("step", "Step"),
        ("rotated", "float"),
        ("key_cache", "uint8_t"),
        ("value_cache", "uint8_t"),
    ),
    (("heads", "uint"), ("heads_kv", "uint"), ("capacity", "uint"), ("epsilon", "float")),
)


@dataclass(frozen=True)
class Heads:
    """What a launch works on.

    Attributes:
        heads: of queries, 0 without.
        heads_kv: of keys and of values, 0 without.
        head_dim: a multiple of 8 up to 256.
        layer: of the cache.
    """

    heads: int
    heads_kv: int
    head_dim: int
    layer: int = 0


def launches(
    call: Call,
    heads: Heads,
    *,
    frequencies: bytes = b"",
    interleaved: bool = True,
    epsilon: float | None = None,
    factors: bool = False,
) -> tuple[Launch, ...]:
    """Return the one launch.

    Args:
        call: its weights are [query norm, key norm,] [factors], all F32.
        heads: inputs are queries, keys, values, as far as there are heads of them.
        frequencies: (head_dim / 2,) float32, radians per position; empty does not rotate.
        interleaved: pairs are neighbours, not halves.
        epsilon: of the norms; None without.
        factors: what frequencies are divided by is the last weight.

    Raises:
        UnsupportedError: a head too wide, a cache it does not fit, or a weight that is not F32.
    """
    check_head_dim(heads.head_dim, call.cache)
    _check_weights(call.weights)
    norms = 0 if epsilon is None else 2
    absent = Operand(Kind.STEP)  # fills the place of a pointer that is not followed
    inputs = [Operand(Kind.INPUT, i) for i in range(len(call.inputs))]
    queries = inputs[0] if heads.heads else absent
    keys, values = inputs[-2:] if heads.heads_kv else (absent, absent)
    operands = (
        queries,
        keys,
        values,
        Operand(Kind.WEIGHT, 0) if norms else absent,
        Operand(Kind.WEIGHT, 1) if norms else absent,
        Operand(Kind.TABLE, content=frequencies) if frequencies else absent,
        Operand(Kind.WEIGHT, norms) if factors else absent,
        Operand(Kind.STEP),
        Operand(Kind.OUTPUT, reads=False, writes=True) if heads.heads else absent,
        Operand(Kind.KEYS, heads.layer, reads=False, writes=True) if heads.heads_kv else absent,
        Operand(Kind.VALUES, heads.layer, reads=False, writes=True) if heads.heads_kv else absent,
    )
    lanes = call.limits.subgroup
    constants = (
        -(-heads.head_dim // 2 // lanes) * lanes,
        heads.head_dim,
        int(interleaved),
        int(bool(frequencies)),
        int(bool(norms)),
        int(factors),
    )
    return (
        Launch(
            f"rotate_store_{call.cache.name.lower()}",
            operands,
            ARGUMENTS.pack(
                heads=heads.heads,
                heads_kv=heads.heads_kv,
                capacity=call.capacity,
                epsilon=epsilon or 0.0,
            ),
            (heads.heads + 2 * heads.heads_kv, call.tokens, 1),
            constants,
        ),
    )


def _check_weights(weights: Sequence[BlockType]) -> None:
    for weight in weights:
        if weight.name != "F32":
            raise UnsupportedError(
                f"rope: a norm or frequencies in {weight.name}; GPUs take F32.",
                hint="use --device cpu.",
            )
