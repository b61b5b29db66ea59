"""observe: add up the squares of each column, for an importance matrix; no op of a graph."""

from edgequant.graph.launch import Arguments, Call, Kind, Launch, Operand

THREADS = 64  # of a workgroup, as in the shader

OBSERVE = Arguments(
    "ObserveArgs", (("x", "float"), ("step", "Step"), ("sums", "float")), (("columns", "uint"),)
)


def launches(call: Call) -> tuple[Launch, ...]:
    """Return the launch that adds the squares of `step.tokens` rows of input 0 to the output.

    The output is (columns,) float32 and is read as well: it was zeroed before the first launch.
    """
    columns = call.inputs[0][-1]
    operands = (Operand(Kind.INPUT), Operand(Kind.STEP), Operand(Kind.OUTPUT, writes=True))
    grid = (-(-columns // THREADS), 1, 1)
    return (Launch("observe", operands, OBSERVE.pack(columns=columns), grid),)
