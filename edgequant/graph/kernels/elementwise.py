"""add, gate, bias: every element by itself; four columns a thread, tokens along the second axis."""

from edgequant.graph.launch import Arguments, Kind, Launch, Operand

THREADS = 256  # of a workgroup, as in the shaders

ADD = Arguments(
    "AddArgs", (("a", "float"), ("b", "float"), ("out", "float")), (("columns", "uint"),)
)
GATE = Arguments("GateArgs", ADD.pointers, ADD.scalars)
BIAS = Arguments(
    "BiasArgs", (("x", "float"), ("weight", "float"), ("out", "float")), (("columns", "uint"),)
)


def launches(kernel: str, second: Kind, shape: tuple[int, ...]) -> tuple[Launch, ...]:
    """Return the launch of one of the kernels.

    Args:
        kernel: "add", "gate" or "bias".
        second: the other operand beside the input: INPUT (number 1), or WEIGHT (number 0).
        shape: (tokens, columns).
    """
    tokens, columns = shape
    operands = (
        Operand(Kind.INPUT, 0),
        Operand(second, 1 if second is Kind.INPUT else 0),
        Operand(Kind.OUTPUT, reads=False, writes=True),
    )
    grid = (-(-columns // (4 * THREADS)), tokens, 1)
    return (Launch(kernel, operands, ADD.pack(columns=columns), grid),)
