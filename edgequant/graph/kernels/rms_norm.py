"""rms_norm: a workgroup a run of columns, be it a row or a head; roundings are written beside."""

from edgequant.graph.launch import Arguments, Call, Kind, Launch, Operand

RMS_NORM = Arguments(
    "RmsNormArgs",
    (
        ("x", "float"),
        ("weight", "float"),
        ("out", "float"),
        ("quants", "uint8_t"),
        ("halves", "uint8_t"),
    ),
    (("columns", "uint"), ("width", "uint"), ("epsilon", "float"), ("tokens", "uint")),
)
EIGHT = 8  # lanes that round a block to int8 together
MULTIPLE = {"q8": 32, "half": 64}  # of a run, that can be written rounded, by the rounding's tag


def launches(call: Call, width: int, epsilon: float) -> tuple[Launch, ...]:
    """Return the launch.

    Args:
        call: of one input, (tokens, columns); four columns a thread, as far as a workgroup goes.
        width: columns of a run, all of them or a part.
        epsilon: added to the mean square.
    """
    tokens, columns = call.inputs[0]
    lanes = call.limits.subgroup
    empty = Operand(Kind.STEP)  # fills the place of what is not wanted
    wanted = {
        operand.tag: operand
        for operand in call.wants
        if operand.tag in MULTIPLE
        and width % MULTIPLE[operand.tag] == 0
        and (operand.tag != "q8" or lanes % EIGHT == 0)
    }
    operands = (
        Operand(Kind.INPUT),
        Operand(Kind.WEIGHT),
        Operand(Kind.OUTPUT, reads=False, writes=True),
        wanted.get("q8", empty),
        wanted.get("half", empty),
    )
    subgroups = -(-width // (4 * lanes))
    threads = lanes * min(subgroups, min(call.limits.workgroup, 1024) // lanes)
    scalars = RMS_NORM.pack(columns=columns, width=width, epsilon=epsilon, tokens=tokens)
    constants = (threads, int("q8" in wanted), int("half" in wanted))
    return (Launch("rms_norm", operands, scalars, (columns // width, tokens, 1), constants),)
