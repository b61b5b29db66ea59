"""Kernel `rotate_store`: norm, rotate and store heads; RotateStore, Rope and StoreKV launch it."""

from dataclasses import dataclass

from edgequant.graph.kernels.cache import RESULT, STEP, Rotation, check_head_dim, check_weights
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

EACH = 8  # heads of a workgroup, which turn by the same angles,
MANY = 64  # where there are so many tokens; else one


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


def launches(call: Call, heads: Heads, rotation: Rotation) -> tuple[Launch, ...]:
    """Return the one launch; inputs are queries, keys, values, as far as there are heads of them.

    Raises:
        UnsupportedError: a head too wide, a cache it does not fit, or a weight that is not F32.
    """
    check_head_dim(heads.head_dim, call.cache)
    check_weights(call.weights)
    inputs = [Operand(Kind.INPUT, i) for i in range(len(call.inputs))]
    queries, rotated = (inputs[0], RESULT) if heads.heads else (STEP, STEP)
    stored: tuple[Operand, ...] = (STEP,) * 4
    if heads.heads_kv:
        caches = (
            Operand(kind, heads.layer, reads=False, writes=True)
            for kind in (Kind.KEYS, Kind.VALUES)
        )
        stored = (*inputs[-2:], *caches)
    interleaved, normed, scaled = rotation.constants()
    lanes = call.limits.subgroup
    threads = -(-heads.head_dim // 2 // lanes) * lanes
    rotates = int(bool(rotation.frequencies))
    each = EACH if call.tokens >= MANY else 1
    return (
        Launch(
            f"rotate_store_{call.cache.name.lower()}",
            (queries, *stored[:2], *rotation.operands(), STEP, rotated, *stored[2:]),
            ARGUMENTS.pack(
                heads=heads.heads,
                heads_kv=heads.heads_kv,
                capacity=call.capacity,
                epsilon=rotation.epsilon or 0.0,
            ),
            (-(-(heads.heads + 2 * heads.heads_kv) // each), call.tokens, 1),
            (threads, heads.head_dim, interleaved, rotates, normed, scaled, each),
        ),
    )
