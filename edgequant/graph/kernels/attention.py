"""Attention over the KV cache: `attention` and `attention_merge` for a few tokens, else tiles.

For a few tokens the context is split, so that all of a large GPU has work; how often depends on the
context of the recording alone. Short contexts are not split: the merge would cost more.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from edgequant.graph.kernels.cache import (
    RESULT,
    STEP,
    WIDEST,
    Rotation,
    check_head_dim,
    check_weights,
)
from edgequant.graph.launch import Arguments, Call, Kind, Launch, Operand

SIZES = (("heads_kv", "uint"), ("group", "uint"), ("capacity", "uint"), ("tokens", "uint"))
READ = (("queries", "float"), ("key_cache", "uint8_t"), ("value_cache", "uint8_t"))
ATTENTION = Arguments(
    "AttentionArgs",
    (
        *READ,
        ("step", "Step"),
        ("result", "float"),
        ("rounded", "uint8_t"),
        ("keys", "float"),
        ("values", "float"),
        ("query_norm", "float"),
        ("key_norm", "float"),
        ("frequencies", "float"),
        ("factors", "float"),
    ),
    (*SIZES, ("splits", "uint"), ("scale", "float"), ("epsilon", "float")),
)
MANY = Arguments(
    "ManyAttentionArgs",
    (*READ, ("step", "Step"), ("result", "float"), ("halves", "uint8_t")),
    (*SIZES, ("scale", "float")),
)
MERGE = Arguments(
    "AttentionMergeArgs",
    (("partial", "float"), ("result", "float"), ("rounded", "uint8_t")),
    SIZES,
)

# Widths of a head that `attention_matrix` is compiled for: by (M, N, K) of the GPU's matrices and
# lanes of its subgroups, by cache.
MATRIX_HEADS: Mapping[tuple[int, int, int, int], Mapping[str, tuple[int, ...]]] = {
    (16, 16, 16, 32): {"F16": (64, 80, 96, 128), "Q8_0": (64, 96, 128)},
    (8, 8, 8, 32): {"F16": (64, 80, 96, 128), "Q8_0": (64, 96, 128)},
    (8, 8, 8, 8): {"F16": (64,), "Q8_0": (64,)},
}
FEW = 8  # tokens that are taken one by one
ROWS = 2  # of a workgroup: registers hold their queries and sums
MOST_ROWS = 4  # the same, as the kernel is written
ALONE = 64  # workgroups up to which a row has one of its own where the context is not split
CHUNKS = 2  # of 8 values a thread has of a head, if lanes suffice
UNSPLIT = 512  # tokens of context up to which it is not split
SHARE = 128  # tokens of context of a split at least
SUBGROUPS = 8  # of a workgroup, if their sums fit
SUBGROUPS_SPLIT = 4  # the same where the context is split
MERGING = 256  # threads of the merge
BUSY = 256  # workgroups that keep a large GPU busy


@dataclass(frozen=True)
class Heads:
    """What is attended: `group` heads of queries to each of `heads_kv` of the cache of `layer`."""

    layer: int
    heads_kv: int
    group: int
    head_dim: int

    @property
    def scale(self) -> float:
        """Of scores: powers are of two, as GPUs compute them."""
        return math.log2(math.e) / math.sqrt(self.head_dim)

    def read(self) -> tuple[Operand, Operand, Operand]:
        """Return queries and cache."""
        return (
            Operand(Kind.INPUT, 0),
            Operand(Kind.KEYS, self.layer),
            Operand(Kind.VALUES, self.layer),
        )

    def sizes(self, call: Call) -> dict[str, int]:
        """Return the scalars that all kernels share."""
        return {
            "heads_kv": self.heads_kv,
            "group": self.group,
            "capacity": call.capacity,
            "tokens": call.tokens,
        }


def launches(call: Call, heads: Heads, fresh: Rotation | None = None) -> tuple[Launch, ...]:
    """Return the launches of one layer's attention.

    Args:
        call: input 0 is the queries.
        heads: of queries and cache.
        fresh: for one token: inputs are queries, keys and values that nobody has rotated or stored
            yet; this is to be done to them.

    Raises:
        UnsupportedError: a head that is too wide, or not whole blocks of the cache.
    """
    check_head_dim(heads.head_dim, call.cache)
    if call.tokens > FEW:
        return (_many(call, heads),)
    return _few(call, heads, fresh)


def _many(call: Call, heads: Heads) -> Launch:
    """Return `attention_matrix` where the GPU multiplies matrices, else `attention_tiled`."""
    columns = heads.heads_kv * heads.group * heads.head_dim
    wanted = [w for w in call.wants if w.tag == "half" and columns % 64 == 0]
    operands = (*heads.read(), STEP, RESULT, wanted[0] if wanted else STEP)
    scalars = MANY.pack(**heads.sizes(call), scale=heads.scale)
    matrix, cache = call.limits.cooperative_matrix or (0, 0, 0), call.cache.name
    sizes = MATRIX_HEADS.get((*matrix, call.limits.subgroup), {}).get(cache, ())
    if heads.head_dim in sizes:
        lanes = "_lanes32" if matrix[0] == 8 and call.limits.subgroup == 32 else ""
        kernel = f"attention_matrix_{cache.lower()}_{matrix[0]}x{heads.head_dim}{lanes}"
        rows = 4 * matrix[0]
        tile = []
    else:
        wide = heads.head_dim > WIDEST // 2 and cache != "F32"
        kernel = f"attention_tiled_{cache.lower()}{'_wide' if wide else ''}"
        rows = 16 if wide or cache == "F32" else 32
        tile = [heads.head_dim]
    return Launch(
        kernel,
        operands,
        scalars,
        (-(-heads.group * call.tokens // rows), heads.heads_kv, 1),
        (int(bool(wanted)), *tile),
    )


def _few(call: Call, heads: Heads, fresh: Rotation | None) -> tuple[Launch, ...]:
    """Return `attention`, and `attention_merge` where the context is split."""
    subgroup, head_dim = call.limits.subgroup, heads.head_dim
    rows, splits = heads.group * call.tokens, 1
    if call.context > UNSPLIT:
        passes = -(-rows // ROWS)
        splits = max(1, min(call.context // SHARE, -(-BUSY // (heads.heads_kv * passes))))
    else:
        passes = -(-rows // min(MOST_ROWS, -(-heads.heads_kv * rows // ALONE)))
    rows_each = -(-rows // passes)
    lanes = max(_power_of_two(-(-head_dim // (8 * CHUNKS))), 4 if call.cache.weights > 1 else 1)
    lanes = min(subgroup, lanes)
    most = SUBGROUPS if splits == 1 else SUBGROUPS_SPLIT
    subgroups = _subgroups(call, rows_each * head_dim, most)
    wanted = [w for w in call.wants if w.tag == "q8" and head_dim % 32 == 0]
    rounded = wanted[0] if wanted else STEP
    partial = Operand(Kind.SCRATCH, 0, nbytes=4 * heads.heads_kv * rows * splits * (head_dim + 2))
    read: tuple[Operand, ...] = heads.read()
    made: tuple[Operand, ...] = (STEP,) * 6
    turning = (0, 0, 0, 0)
    if fresh is not None:
        check_weights(call.weights)
        read = (read[0], *(replace(cache, writes=True) for cache in read[1:]))
        made = (Operand(Kind.INPUT, 1), Operand(Kind.INPUT, 2), *fresh.operands())
        turning = (1, *fresh.constants())
    whole = (RESULT, rounded) if splits == 1 else (replace(partial, reads=False, writes=True), STEP)
    attend = Launch(
        f"attention_{call.cache.name.lower()}",
        (*read, STEP, *whole, *made),
        ATTENTION.pack(
            **heads.sizes(call),
            splits=splits,
            scale=heads.scale,
            epsilon=(fresh and fresh.epsilon) or 0.0,
        ),
        (splits, heads.heads_kv, passes),
        (
            subgroup * subgroups, head_dim, rows_each, lanes, -(-head_dim // (8 * lanes)),
            int(bool(wanted) and splits == 1), *turning, subgroups,
        ),
    )  # fmt: skip
    if splits == 1:
        return (attend,)
    merge = Launch(
        "attention_merge",
        (partial, RESULT, rounded),
        MERGE.pack(**heads.sizes(call)),
        (rows, heads.heads_kv, 1),
        (-(-MERGING // subgroup) * subgroup, head_dim, splits, int(bool(wanted))),
    )
    return (attend, merge)


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def _subgroups(call: Call, values: int, most: int) -> int:
    """Return how many subgroups a workgroup has: their sums of `values` meet in 16 KiB."""
    most = min(most, call.limits.workgroup // call.limits.subgroup, 4096 // values)
    return 1 << (most.bit_length() - 1)
