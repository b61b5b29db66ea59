"""rows: copy the last `step.rows` of `step.tokens` rows to the front."""

from edgequant.graph.launch import Arguments, Kind, Launch, Operand

THREADS = 256  # of a workgroup, as in the shader

ROWS = Arguments(
    "RowsArgs", (("x", "float"), ("step", "Step"), ("out", "float")), (("columns", "uint"),)
)


def launches(rows: int, columns: int) -> tuple[Launch, ...]:
    """Return the launch for at most so many rows."""
    operands = (
        Operand(Kind.INPUT),
        Operand(Kind.STEP),
        Operand(Kind.OUTPUT, reads=False, writes=True),
    )
    grid = (-(-columns // (4 * THREADS)), rows, 1)
    return (Launch("rows", operands, ROWS.pack(columns=columns), grid),)
