"""rms_norm: a workgroup a run of columns, be it a row or a head."""

from edgequant.graph.launch import Arguments, Kind, Launch, Limits, Operand

RMS_NORM = Arguments(
    "RmsNormArgs",
    (("x", "float"), ("weight", "float"), ("out", "float")),
    (("columns", "uint"), ("width", "uint"), ("epsilon", "float")),
)


def launches(
    shape: tuple[int, ...], width: int, epsilon: float, limits: Limits
) -> tuple[Launch, ...]:
    """Return the launch.

    Args:
        shape: (tokens, columns).
        width: columns of a run, all of them or a part.
        epsilon: added to the mean square.
        limits: of the GPU; four columns a thread, as far as a workgroup goes.
    """
    tokens, columns = shape
    operands = (
        Operand(Kind.INPUT),
        Operand(Kind.WEIGHT),
        Operand(Kind.OUTPUT, reads=False, writes=True),
    )
    subgroups = -(-width // (4 * limits.subgroup))
    threads = limits.subgroup * min(subgroups, min(limits.workgroup, 1024) // limits.subgroup)
    return (
        Launch(
            "rms_norm",
            operands,
            RMS_NORM.pack(columns=columns, width=width, epsilon=epsilon),
            (columns // width, tokens, 1),
            (threads,),
        ),
    )
