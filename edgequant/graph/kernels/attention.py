"""Attention over the KV cache: `attention` and `attention_merge` for a few tokens, else tiles.

For a few tokens the context is split, so that all of a large GPU has work; how often depends on the
context of the recording alone. Short contexts are not split: the merge would cost more.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from edgequant.blocks import BlockType
from edgequant.errors import UnsupportedError
from edgequant.graph.launch import Arguments, Call, Kind, Launch, Operand

SIZES = (("heads_kv", "uint"), ("group", "uint"), ("capacity", "uint"), ("tokens", "uint"))
ATTENTION = Arguments(
    "AttentionArgs",
    (
        ("queries", "float"),
        ("key_cache", "uint8_t"),
        ("value_cache", "uint8_t"),
        ("step", "Step"),
        ("result", "float"),
        ("partial", "float"),
        ("stats", "float2"),
        ("rounded", "uint8_t"),
    ),
    (*SIZES, ("splits", "uint"), ("scale", "float")),
)
MANY = Arguments(
    "ManyAttentionArgs",
    (*ATTENTION.pointers[:5], ("halves", "uint8_t")),
    (*SIZES, ("scale", "float")),
)
MERGE = Arguments(
    "AttentionMergeArgs",
    (("partial", "float"), ("stats", "float2"), ("result", "float"), ("rounded", "uint8_t")),
    SIZES,
)
STEP = Operand(Kind.STEP)
RESULT = Operand(Kind.OUTPUT, reads=False, writes=True)

# Widths of a head that `attention_matrix` is compiled for: by (M, N, K) of the GPU's matrices and
# lanes of its subgroups, by cache.
MATRIX_HEADS: Mapping[tuple[int, int, int, int], Mapping[str, tuple[int, ...]]] = {
    (16, 16, 16, 32): {"F16": (64, 80, 96, 128), "Q8_0": (64, 96, 128)},
    (8, 8, 8, 8): {"F16": (64,), "Q8_0": (64,)},
}
FEW = 8  # tokens that are taken one by one
WIDEST = 256  # of a head: what registers and shared memory hold
WIDEST_FLOATS = 192  # the same, with a cache in F32
ROWS = 4  # of a workgroup: registers hold their queries and sums
CHUNKS = 2  # of 8 values a thread has of a head, if lanes suffice
AHEAD = 2  # keys it loads before it uses the first: the latency of memory is waited for once
UNSPLIT = 512  # tokens of context up to which it is not split
SHARE = 128  # tokens of context of a split at least
SUBGROUPS = 8  # of a workgroup, if their sums fit
MERGING = 128  # threads of the merge
BUSY = 256  # workgroups that keep a large GPU busy


@dataclass(frozen=True)
class Heads:
    """What is attended: `group` heads of queries to each of `heads_kv` of the cache of `layer`."""

    layer: int
    heads_kv: int
    group: int
    head_dim: int

    def sizes(self, call: Call) -> dict[str, int]:
        """Return the scalars that all kernels share."""
        return {
            "heads_kv": self.heads_kv,
            "group": self.group,
            "capacity": call.capacity,
            "tokens": call.tokens,
        }


def launches(call: Call, heads: Heads) -> tuple[Launch, ...]:
    """Return the launches of one layer's attention; input 0 is the queries.

    Raises:
        UnsupportedError: a head that is too wide, or not whole blocks of the cache.
    """
    check_head_dim(heads.head_dim, call.cache)
    read = (
        Operand(Kind.INPUT, 0),
        Operand(Kind.KEYS, heads.layer),
        Operand(Kind.VALUES, heads.layer),
        STEP,
    )
    scale = math.log2(math.e) / math.sqrt(heads.head_dim)  # of powers of two, as GPUs compute
    if call.tokens <= FEW:
        return _few(call, heads, read, scale)
    return (_many(call, heads, read, scale),)


def _many(call: Call, heads: Heads, read: tuple[Operand, ...], scale: float) -> Launch:
    """Return `attention_matrix` where the GPU multiplies matrices, else `attention_tiled`."""
    columns = heads.heads_kv * heads.group * heads.head_dim
    wanted = [w for w in call.wants if w.tag == "half" and columns % 64 == 0]
    operands = (*read, RESULT, wanted[0] if wanted else STEP)
    scalars = MANY.pack(**heads.sizes(call), scale=scale)
    matrix, cache = call.limits.cooperative_matrix or (0, 0, 0), call.cache.name
    sizes = MATRIX_HEADS.get((*matrix, call.limits.subgroup), {}).get(cache, ())
    if heads.head_dim in sizes:
        kernel = f"attention_matrix_{cache.lower()}_{matrix[0]}x{heads.head_dim}"
        rows = 4 * matrix[0]
        tile = []
    else:
        kernel = f"attention_tiled_{cache.lower()}"
        rows = 32 if heads.head_dim <= WIDEST // 2 and cache != "F32" else 16
        tile = [heads.head_dim, rows]
    return Launch(
        kernel,
        operands,
        scalars,
        (-(-heads.group * call.tokens // rows), heads.heads_kv, 1),
        (int(bool(wanted)), *tile),
    )


def _few(call: Call, heads: Heads, read: tuple[Operand, ...], scale: float) -> tuple[Launch, ...]:
    """Return `attention`, and `attention_merge` where the context is split."""
    rows = heads.group * call.tokens
    passes = -(-rows // ROWS)
    splits = 1
    if call.context > UNSPLIT:
        splits = max(1, min(call.context // SHARE, -(-BUSY // (heads.heads_kv * passes))))
    rows_each = -(-rows // passes)
    lanes = min(call.limits.subgroup, _power_of_two(-(-heads.head_dim // (8 * CHUNKS))))
    tile = (rows_each, lanes, -(-heads.head_dim // (8 * lanes)), AHEAD)
    threads = call.limits.subgroup * _subgroups(call, rows_each * heads.head_dim)
    wanted = [w for w in call.wants if w.tag == "q8" and heads.head_dim % 32 == 0]
    rounded = wanted[0] if wanted else STEP  # fills an empty place

    def attend(written: tuple[Operand, ...], *, round_too: bool) -> Launch:
        return Launch(
            f"attention_{call.cache.name.lower()}",
            (*read, *written),
            ATTENTION.pack(**heads.sizes(call), splits=splits, scale=scale),
            (splits, heads.heads_kv, passes),
            (threads, heads.head_dim, *tile, int(round_too)),
        )

    if splits == 1:
        return (attend((RESULT, STEP, STEP, rounded), round_too=bool(wanted)),)
    places = heads.heads_kv * rows * splits
    partial = Operand(Kind.SCRATCH, 0, nbytes=4 * places * heads.head_dim)
    stats = Operand(Kind.SCRATCH, 1, nbytes=4 * places * 2)
    made = (replace(o, reads=False, writes=True) for o in (partial, stats))
    subgroup = call.limits.subgroup
    merge = Launch(
        "attention_merge",
        (partial, stats, RESULT, rounded),
        MERGE.pack(**heads.sizes(call)),
        (rows, heads.heads_kv, 1),
        (-(-MERGING // subgroup) * subgroup, heads.head_dim, splits, int(bool(wanted))),
    )
    return (attend((STEP, *made, STEP), round_too=False), merge)


def check_head_dim(head_dim: int, cache: BlockType) -> None:
    """Refuse a head that kernels cannot take, or that is not whole blocks of the cache.

    Raises:
        UnsupportedError: with both numbers.
    """
    widest = WIDEST_FLOATS if cache.name == "F32" else WIDEST
    if head_dim > widest or head_dim % 8:
        raise UnsupportedError(
            f"attention: heads of {head_dim} values; a GPU takes multiples of 8 up to {widest} "
            f"with a KV cache in {cache.name}.",
            hint="use --device cpu.",
        )
    if head_dim % cache.weights:
        raise UnsupportedError(
            f"attention: heads of {head_dim} values; a KV cache in {cache.name} takes multiples "
            f"of {cache.weights}.",
            hint="use --cache-type f16.",
        )


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def _subgroups(call: Call, values: int) -> int:
    """Return how many subgroups a workgroup has: their sums of `values` meet in 16 KiB."""
    most = min(SUBGROUPS, call.limits.workgroup // call.limits.subgroup, 4096 // values)
    return 1 << (most.bit_length() - 1)
