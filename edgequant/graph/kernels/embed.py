"""The kernel that decodes rows of the embedding, `embed_{format}`."""

from edgequant.graph.kernels.compiled import format_kernel
from edgequant.graph.launch import Arguments, Call, Kind, Launch, Operand

EMBED = Arguments(
    "EmbedArgs",
    (("tokens", "uint"), ("step", "Step"), ("w", "uint8_t"), ("y", "float")),
    (("columns", "uint"), ("row_nbytes", "uint")),
)
THREADS = 64  # of a workgroup, as in the shader
UNIT = 16  # weights a thread decodes at least


def launches(call: Call, columns: int) -> tuple[Launch, ...]:
    """Return the launch that decodes a row of `columns` weights for each token.

    Raises:
        UnsupportedError: no kernel decodes the weight's format.
    """
    (weight,) = call.weights
    operands = (
        Operand(Kind.TOKENS),
        Operand(Kind.STEP),
        Operand(Kind.WEIGHT),
        Operand(Kind.OUTPUT, reads=False, writes=True),
    )
    scalars = EMBED.pack(columns=columns, row_nbytes=weight.row_nbytes(columns))
    threads = columns // UNIT + columns % UNIT
    grid = (-(-threads // THREADS), call.tokens, 1)
    return (Launch(format_kernel("embed", weight), operands, scalars, grid),)
