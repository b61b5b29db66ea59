"""The kernel that decodes rows of the embedding, `embed_{format}`."""

from edgequant.graph.launch import Arguments, Call, Kind, Launch, Operand

EMBED = Arguments(
    "EmbedArgs",
    (("tokens", "uint"), ("w", "uint8_t"), ("y", "float")),
    (("columns", "uint"), ("rows", "uint"), ("row_nbytes", "uint")),
)
THREADS = 64
UNIT = 16  # weights a thread decodes at least


def launches(call: Call, columns: int, rows: int) -> tuple[Launch, ...]:
    """Return the launch that decodes a row of (rows, columns) for each token of the bucket."""
    (weight,) = call.weights
    operands = (
        Operand(Kind.TOKENS),
        Operand(Kind.WEIGHT),
        Operand(Kind.OUTPUT, reads=False, writes=True),
    )
    scalars = EMBED.pack(columns=columns, rows=rows, row_nbytes=weight.row_nbytes(columns))
    groups = -(-(columns // UNIT + UNIT - 1) // THREADS)
    kernel = f"embed_{weight.name.lower()}"
    return (Launch(kernel, operands, scalars, (groups, call.tokens, 1)),)
