"""Linear layers with many tokens: `matmul` by cooperative matrices, `matmul_tiled` without.

`matmul` multiplies in half precision with float32 sums: `halve` rounds its activations once for all
that read them (DERIVED, "half"), and `matmul_parts` adds up what splits of the columns made.
"""

from dataclasses import dataclass

from edgequant.graph.kernels.compiled import format_kernel
from edgequant.graph.kernels.linear import ABSENT, Linear
from edgequant.graph.launch import Arguments, Call, Kind, Launch, Limits, Operand

MATMUL = Arguments(
    "MatmulArgs",
    (
        ("w", "uint8_t"),
        ("up", "uint8_t"),
        ("x", "uint8_t"),
        ("step", "Step"),
        ("bias", "float"),
        ("residual", "float"),
        ("y", "float"),
        ("halves", "uint8_t"),
    ),
    (
        ("rows", "uint"),
        ("columns", "uint"),
        ("tokens", "uint"),
        ("stride", "uint"),
        ("row_nbytes", "uint"),
        ("splits", "uint"),
        # What is fused is told at run time: every pipeline more costs start-up and code memory.
        ("adds_bias", "uint"),
        ("adds_residual", "uint"),
        ("gated", "uint"),
        ("writes_halves", "uint"),
    ),
)
TILED = Arguments(
    "MatmulTiledArgs",
    (
        ("w", "uint8_t"),
        ("up", "uint8_t"),
        ("x", "float"),
        ("step", "Step"),
        ("bias", "float"),
        ("residual", "float"),
        ("y", "float"),
    ),
    (
        ("rows", "uint"),
        ("columns", "uint"),
        ("tokens", "uint"),
        ("row_nbytes", "uint"),
        ("adds_bias", "uint"),
        ("adds_residual", "uint"),
        ("gated", "uint"),
    ),
)
HALVE = Arguments(
    "HalveArgs",
    (("x", "float"), ("step", "Step"), ("halves", "uint8_t")),
    (("columns", "uint"), ("stride", "uint")),
)
PARTS = Arguments(
    "MatmulPartsArgs",
    (
        ("parts", "float"),
        ("step", "Step"),
        ("bias", "float"),
        ("residual", "float"),
        ("y", "float"),
    ),
    (
        ("rows", "uint"),
        ("tokens", "uint"),
        ("splits", "uint"),
        ("adds_bias", "uint"),
        ("adds_residual", "uint"),
    ),
)

MULTIPLE = 64  # of columns that `halve` fills up to
SIDE = 64  # of a tile of `matmul_tiled`
# Fewer workgroups leave a large GPU idle (an H200 has 132 processors): then tiles become smaller,
# and after that columns are split.
FILLS = 100
SPLITS = 8


@dataclass(frozen=True)
class Tile:
    """One compiled variant of `matmul`; its name's suffix, the matrices it needs, and its size.

    Attributes:
        suffix: of the kernel.
        matrix: (M, N, K) of cooperative matrices.
        subgroup: lanes.
        side: tokens, and rows, of a workgroup.
        step: columns that it multiplies between two barriers.
    """

    suffix: str
    matrix: tuple[int, int, int]
    subgroup: int
    side: int
    step: int

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a workgroup: two tiles of half, lines padded by 16 bytes."""
        return 2 * self.side * (2 * self.step + 16)

    def suits(self, limits: Limits) -> bool:
        """Tell whether a GPU can run it."""
        return (
            limits.cooperative_matrix == self.matrix
            and limits.subgroup == self.subgroup
            and limits.shared_bytes >= self.shared_bytes
        )


# Large first.
TILES = (
    Tile("16x128", (16, 16, 16), 32, side=128, step=64),
    Tile("16x64", (16, 16, 16), 32, side=64, step=64),
    Tile("8x64", (8, 8, 8), 32, side=64, step=32),
    Tile("8x16", (8, 8, 8), 8, side=16, step=32),
)


_OUTPUT = Operand(Kind.OUTPUT, reads=False, writes=True)


def launches(call: Call, linear: Linear, tile: Tile | None = None) -> tuple[Launch, ...]:
    """Return the launches of a linear layer over all tokens of the bucket.

    Args:
        call: more than 8 tokens are worth it.
        linear: the layer.
        tile: chosen where not given; none where activations must stay exact, which halves are not.

    Raises:
        UnsupportedError: the weight's format has no shader.
    """
    tokens = call.inputs[0][0]
    if tile is None and not call.exact:
        tile = choose(call.limits, linear, tokens)
    if tile is None:
        return (_tiled(call, linear, tokens),)
    return _cooperative(call, linear, tokens, tile)


def choose(limits: Limits, linear: Linear, tokens: int) -> Tile | None:
    """Return the tile for a layer; None where `matmul` cannot run."""
    tiles = [tile for tile in TILES if tile.suits(limits)]
    if not tiles:
        return None
    rows = linear.rows * 2 if linear.gated else linear.rows
    # Of those that are not half empty, the largest that fills the GPU.
    low = [tile for tile in tiles if tile.side < 2 * tokens] or tiles[-1:]
    filling = [t for t in low if _count(tokens, t.side) * _count(rows, t.side) >= FILLS]
    return filling[0] if filling else low[-1]


def halves(columns: int, tokens: int, index: int = 0) -> Operand:
    """Return the operand for activations in half, to be written; index -1 is of a node's output."""
    nbytes = 2 * tokens * _stride(columns)
    return Operand(Kind.DERIVED, index, reads=False, writes=True, nbytes=nbytes, tag="half")


def _tiled(call: Call, linear: Linear, tokens: int) -> Launch:
    weight = call.weights[0]
    rows = SIDE // 2 if linear.gated else SIDE
    return Launch(
        format_kernel("matmul_tiled", weight),
        (*linear.matrices, Operand(Kind.INPUT), Operand(Kind.STEP), *linear.added, _OUTPUT),
        TILED.pack(
            rows=linear.rows,
            columns=linear.columns,
            tokens=tokens,
            row_nbytes=weight.row_nbytes(linear.columns),
            adds_bias=linear.bias,
            adds_residual=linear.residual,
            gated=linear.gated,
        ),
        (_count(tokens, SIDE), _count(linear.rows, rows), 1),
    )


def _cooperative(call: Call, linear: Linear, tokens: int, tile: Tile) -> tuple[Launch, ...]:
    weight, stride = call.weights[0], _stride(linear.columns)
    row_tiles = _count(linear.rows, tile.side // 2 if linear.gated else tile.side)
    token_tiles = _count(tokens, tile.side)
    steps = _count(linear.columns, tile.step)
    splits = min(SPLITS, max(1, FILLS // (row_tiles * token_tiles)), max(1, steps // 8))
    if linear.gated:
        splits = 1  # its sums must be whole before they meet
    alone = splits == 1

    written = halves(linear.columns, tokens)
    halve = Launch(
        "halve",
        (Operand(Kind.INPUT), Operand(Kind.STEP), written),
        HALVE.pack(columns=linear.columns, stride=stride),
        (_count(stride, 8 * 64), tokens, 1),
    )
    wanted = halves(linear.rows, tokens, -1)
    also = linear.gated and linear.rows % MULTIPLE == 0 and _wants(call, wanted)
    parts = Operand(
        Kind.SCRATCH, 0, reads=False, writes=True, nbytes=4 * splits * tokens * linear.rows
    )
    multiply = Launch(
        f"{format_kernel('matmul', weight)}_{tile.suffix}",
        (
            *linear.matrices,
            _read(written),
            Operand(Kind.STEP),
            *(linear.added if alone else (ABSENT, ABSENT)),
            _OUTPUT if alone else parts,
            wanted if also else ABSENT,
        ),
        MATMUL.pack(
            rows=linear.rows,
            columns=linear.columns,
            tokens=tokens,
            stride=stride,
            row_nbytes=weight.row_nbytes(linear.columns),
            splits=splits,
            adds_bias=linear.bias and alone,
            adds_residual=linear.residual and alone,
            gated=linear.gated,
            writes_halves=also,
        ),
        (token_tiles, row_tiles, splits),
    )
    if alone:
        return halve, multiply
    add = Launch(
        "matmul_parts",
        (_read(parts), Operand(Kind.STEP), *linear.added, _OUTPUT),
        PARTS.pack(
            rows=linear.rows,
            tokens=tokens,
            splits=splits,
            adds_bias=linear.bias,
            adds_residual=linear.residual,
        ),
        (_count(linear.rows, 4 * 64), tokens, 1),
    )
    return halve, multiply, add


def _wants(call: Call, operand: Operand) -> bool:
    return any((w.index, w.tag) == (operand.index, operand.tag) for w in call.wants)


def _read(operand: Operand) -> Operand:
    return Operand(operand.kind, operand.index, nbytes=operand.nbytes, tag=operand.tag)


def _stride(columns: int) -> int:
    return _count(columns, MULTIPLE) * MULTIPLE


def _count(whole: int, part: int) -> int:
    return -(-whole // part)
