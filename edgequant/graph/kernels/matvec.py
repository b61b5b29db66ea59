"""Mat-vec: one to eight tokens times a weight matrix, with what is fused to it.

`matvec_{format}` multiplies float32 activations, `matvec_i8_{format}` activations that
`quantize_activations` has rounded to int8, which is what gets near the speed of memory. A mat-vec
of one token can round its own rows for the next, and RMS norms vanish into the mat-vecs around
them: see shaders/lib/normed.slang.
"""

from dataclasses import dataclass

from edgequant.graph.kernels.compiled import INTEGERS, format_kernel
from edgequant.graph.kernels.linear import ABSENT, Linear
from edgequant.graph.launch import Arguments, Call, Kind, Launch, Limits, Operand

MATVEC = Arguments(
    "MatvecArgs",
    (
        ("x", "uint8_t"),
        ("w", "uint8_t"),
        ("up", "uint8_t"),
        ("bias", "float"),
        ("residual", "float"),
        ("y", "float"),
        ("weight", "float"),
        ("made", "uint8_t"),
    ),
    (
        *(
            (name, "uint")
            for name in (
                "columns", "rows", "row_nbytes", "tokens", "adds_bias", "adds_residual", "weighs",
                "parts",
            )
        ),
        ("epsilon", "float"),
    ),
)  # fmt: skip
QUANTIZE_ACTIVATIONS = Arguments(
    "QuantizeActivationsArgs",
    (("x", "float"), ("norm", "float"), ("made", "uint8_t")),
    (("columns", "uint"), ("tokens", "uint")),
)
MOST_TOKENS = 8
LABORIOUS = ("Q2_K", "Q3_K", "Q6_K", "TQ2_0")  # to decode
TOKENS = 4  # of the variant for several
TAG = "q8"  # of int8 activations
NORMED = "norm"  # of those that an RMS norm has yet to divide
BLOCK = 16  # rows that a workgroup rounds, as in lib/normed.slang
QUANTIZED_BY_WORKGROUP = 1024  # columns
FEW_ROWS = 2048  # below, one subgroup a row would leave much of a GPU idle
MANY = 4096  # rows
GRID_X = 1 << 15  # as in lib/matvec.slang


@dataclass(frozen=True)
class Tuning:
    """How a mat-vec is spread over threads; see lib/matvec.slang.

    Attributes:
        threads: of a workgroup.
        team: threads that share rows, whole subgroups.
        rows: of a team: two share what is loaded of the activations, of one token.
    """

    threads: int
    team: int
    rows: int


def tune(call: Call, linear: Linear, *, rounds: bool = False) -> Tuning:
    """Choose how a layer is spread over threads.

    Measured on an H200 in whole decode steps of 8B, 3B and 1B models, one choice changed at a time:
    several subgroups share a row where rows are few or long, so that all of a GPU is busy; rows are
    taken by twos where there are enough of them.

    Args:
        call: for its limits and types.
        linear: the layer.
        rounds: a workgroup is to have BLOCK rows, to round them.
    """
    lanes, most = call.limits.subgroup, call.limits.workgroup
    few, long = linear.rows < FEW_ROWS, linear.columns > linear.rows
    alone = call.inputs[0][0] == 1
    hard = alone and call.weights[0].name in LABORIOUS

    def spread(subgroups: int, team: int, rows: int) -> Tuning:
        team = min(team * lanes, most)
        return Tuning(min(subgroups * lanes, most) // team * team, team, rows)

    def whole(team: int, rows: int) -> Tuning:
        team = min(team, most // (BLOCK // rows * lanes))
        return spread(BLOCK // rows * team, team, rows)

    if rounds and linear.gated:
        return whole(1, 2)
    if rounds and long and not hard:
        return whole(2, 2)
    if rounds:
        return whole(2 if linear.rows <= FEW_ROWS and not hard else 1, 1)
    if hard and few:
        return spread(4, 4, 2)
    if hard and long:
        return spread(16, 2, 2)
    if hard:
        return spread(1, 1, 2)
    if linear.gated:
        return spread(1, 1, 1)
    if alone and few:
        return spread(4, 2, 2)
    if few or long:
        return spread(4, 4, 1)
    if alone and linear.rows <= MANY:
        return spread(2, 1, 2)
    return spread(4, 1, 1)


def quantized(tokens: int, columns: int, index: int = 0, *, writes: bool = False) -> Operand:
    """Return the operand of int8 activations of (tokens, columns); see lib/activations.slang."""
    nbytes = tokens * columns * 3 // 2
    return Operand(Kind.DERIVED, index, not writes, writes, nbytes, TAG)


def normed(columns: int, index: int = 0, *, writes: bool = False) -> Operand:
    """Return the operand of int8 activations that an RMS norm has yet to divide, of one token."""
    nbytes = columns * 3 // 2 + 4 * (columns // BLOCK)
    return Operand(Kind.DERIVED, index, not writes, writes, nbytes, NORMED)


def takes_norms(limits: Limits) -> bool:
    """Tell whether mat-vecs of integers can do the norms around them on this GPU."""
    return limits.integer_dot and limits.workgroup >= BLOCK * limits.subgroup


def launches(call: Call, linear: Linear, tuning: Tuning | None = None) -> tuple[Launch, ...]:
    """Return the launches of a linear layer over at most 8 tokens.

    Raises:
        UnsupportedError: no kernel decodes the weight's format.
        ValueError: norms around it, of several tokens, or in floats.
    """
    tokens, weight = call.inputs[0][0], call.weights[0]
    integers = call.limits.integer_dot and not call.exact and weight.name in INTEGERS
    alone = integers and tokens == 1 and takes_norms(call.limits)
    if not alone and (linear.after or linear.before is not None):
        raise ValueError("a mat-vec takes norms of one token in integers")
    made = _made(call, linear) if alone else None
    tuning = tuning or tune(call, linear, rounds=made is not None)
    rounds = [int(made is not None)] if integers else []
    workgroups = -(-linear.rows // (tuning.threads // tuning.team * tuning.rows))
    kernel = format_kernel("matvec_i8" if integers else "matvec", weight)
    multiply = Launch(
        kernel if tokens == 1 else f"{kernel}_{TOKENS}",
        (
            _rounded(tokens, linear) if integers else Operand(Kind.INPUT),
            *linear.matrices,
            *linear.added,
            Operand(Kind.OUTPUT, reads=False, writes=True),
            linear.norm_after,
            made or ABSENT,
        ),
        MATVEC.pack(
            columns=linear.columns,
            rows=linear.rows,
            row_nbytes=weight.row_nbytes(linear.columns),
            tokens=tokens,
            adds_bias=linear.bias,
            adds_residual=linear.residual,
            weighs=linear.after,
            parts=0 if linear.before is None else linear.columns // BLOCK,
            epsilon=linear.before or 0,
        ),
        (
            min(workgroups, GRID_X),
            -(-workgroups // GRID_X),
            1 if tokens == 1 else -(-tokens // TOKENS),
        ),
        (tuning.threads, tuning.team, int(linear.gated), tuning.rows - 1, *rounds),
    )
    return (_quantize(tokens, linear), multiply) if integers else (multiply,)


def _made(call: Call, linear: Linear) -> Operand | None:
    """Return what is derived of the output on the way, if anything."""
    if linear.after:
        return normed(linear.rows, -1, writes=True)
    return next((o for o in call.wants if o.tag == TAG and linear.rows % BLOCK == 0), None)


def _rounded(tokens: int, linear: Linear, *, writes: bool = False) -> Operand:
    if linear.before is None:
        return quantized(tokens, linear.columns, writes=writes)
    return normed(linear.columns, writes=writes)


def _quantize(tokens: int, linear: Linear) -> Launch:
    operands = (Operand(Kind.INPUT), linear.norm_before, _rounded(tokens, linear, writes=True))
    scalars = QUANTIZE_ACTIVATIONS.pack(columns=linear.columns, tokens=tokens)
    grid = (-(-linear.columns // QUANTIZED_BY_WORKGROUP), tokens, 1)
    constants = (int(linear.before is not None),)
    return Launch("quantize_activations", operands, scalars, grid, constants)
