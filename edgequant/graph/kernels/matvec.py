"""Mat-vec: one to eight tokens times a weight matrix, with what is fused to it.

`matvec_{format}` multiplies float32 activations, `matvec_i8_{format}` activations that
`quantize_activations` has rounded to int8, which is what gets near the speed of memory.
"""

from dataclasses import dataclass

from edgequant.graph.kernels.compiled import INTEGERS, format_kernel
from edgequant.graph.kernels.linear import Linear
from edgequant.graph.launch import Arguments, Call, Kind, Launch, Operand

MATVEC = Arguments(
    "MatvecArgs",
    (
        ("x", "uint8_t"),
        ("w", "uint8_t"),
        ("up", "uint8_t"),
        ("bias", "float"),
        ("residual", "float"),
        ("y", "float"),
    ),
    tuple(
        (name, "uint")
        for name in ("columns", "rows", "row_nbytes", "tokens", "adds_bias", "adds_residual")
    ),
)
QUANTIZE_ACTIVATIONS = Arguments(
    "QuantizeActivationsArgs",
    (("x", "float"), ("made", "uint8_t")),
    (("columns", "uint"), ("tokens", "uint")),
)
MOST_TOKENS = 8
WIDE = ("Q2_K", "Q3_K", "Q6_K", "TQ2_0")  # units of 64: two rows a team, as in lib/matvec.slang
TOKENS = 4  # of the variant for several
TAG = "q8"  # of int8 activations
QUANTIZED_BY_WORKGROUP = 1024  # columns
FEW_ROWS = 2048  # below, one subgroup a row would leave much of a GPU idle
GRID_X = 1 << 15  # as in lib/matvec.slang


@dataclass(frozen=True)
class Tuning:
    """How a mat-vec is spread over threads; see lib/matvec.slang.

    Attributes:
        threads: of a workgroup.
        team: threads that share rows, whole subgroups.
        rows: of a team, as compiled.
    """

    threads: int
    team: int
    rows: int


def tune(call: Call, linear: Linear) -> Tuning:
    """Choose how a layer is spread over threads.

    Measured on an H200 in whole decode steps of 8B and 1B models, one choice changed at a time:
    several subgroups share a row where rows are few or long, so that all of a GPU is busy; one
    takes it elsewhere.
    """
    lanes, few, long = call.limits.subgroup, linear.rows < FEW_ROWS, linear.columns > linear.rows
    if call.weights[0].name in WIDE and call.inputs[0][0] == 1:
        if few:
            return Tuning(4 * lanes, 4 * lanes, 2)
        most = call.limits.workgroup // (2 * lanes) * (2 * lanes)
        return Tuning(min(16 * lanes, most) if long else 4 * lanes, 2 * lanes, 2)
    if linear.gated:
        return Tuning(lanes, lanes, 1)
    return Tuning(4 * lanes, 4 * lanes if few or long else lanes, 1)


def quantized(tokens: int, columns: int, index: int = 0, *, writes: bool = False) -> Operand:
    """Return the operand of int8 activations of (tokens, columns); see lib/activations.slang."""
    nbytes = tokens * columns * 3 // 2
    return Operand(Kind.DERIVED, index, not writes, writes, nbytes, TAG)


def launches(call: Call, linear: Linear, tuning: Tuning | None = None) -> tuple[Launch, ...]:
    """Return the launches of a linear layer over at most 8 tokens.

    Raises:
        UnsupportedError: no kernel decodes the weight's format.
    """
    tokens, weight = call.inputs[0][0], call.weights[0]
    integers = call.limits.integer_dot and not call.exact and weight.name in INTEGERS
    tuning = tuning or tune(call, linear)
    workgroups = -(-linear.rows // (tuning.threads // tuning.team * tuning.rows))
    kernel = format_kernel("matvec_i8" if integers else "matvec", weight)
    multiply = Launch(
        kernel if tokens == 1 else f"{kernel}_{TOKENS}",
        (
            quantized(tokens, linear.columns) if integers else Operand(Kind.INPUT),
            *linear.matrices,
            *linear.added,
            Operand(Kind.OUTPUT, reads=False, writes=True),
        ),
        MATVEC.pack(
            columns=linear.columns,
            rows=linear.rows,
            row_nbytes=weight.row_nbytes(linear.columns),
            tokens=tokens,
            adds_bias=linear.bias,
            adds_residual=linear.residual,
        ),
        (
            min(workgroups, GRID_X),
            -(-workgroups // GRID_X),
            1 if tokens == 1 else -(-tokens // TOKENS),
        ),
        (tuning.threads, tuning.team, int(linear.gated)),
    )
    return (_quantize(tokens, linear.columns), multiply) if integers else (multiply,)


def _quantize(tokens: int, columns: int) -> Launch:
    operands = (Operand(Kind.INPUT), quantized(tokens, columns, writes=True))
    scalars = QUANTIZE_ACTIVATIONS.pack(columns=columns, tokens=tokens)
    grid = (-(-columns // QUANTIZED_BY_WORKGROUP), tokens, 1)
    return Launch("quantize_activations", operands, scalars, grid)
