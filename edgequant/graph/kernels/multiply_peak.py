"""`multiply_peak`: products of registers alone, to measure how fast a device can multiply."""

from edgequant.graph.launch import Arguments, Kind, Launch, Limits, Operand

MULTIPLY_PEAK = Arguments(
    "MultiplyPeakArgs", (("made", "float"),), (("scale", "float"), ("rounds", "uint"))
)
SIZES = {32: 16, 8: 8}  # of cooperative matrices, by the lanes of a subgroup, that are compiled
LANES = 32  # threads that count as a subgroup where there are none
SUBGROUPS, SUMS = 4, 8  # of a workgroup, and of a subgroup or thread, as in the shader


def launches(limits: Limits, workgroups: int, rounds: int) -> tuple[tuple[Launch, ...], int]:
    """Return the launch, and the operations it does: a product and a sum are two."""
    size = SIZES.get(limits.subgroup, 0)
    if limits.cooperative_matrix != (size, size, size):
        size = 0
    each = size**3 if size else 4 * LANES
    operands = (Operand(Kind.OUTPUT, reads=False, writes=True),)
    scalars = MULTIPLY_PEAK.pack(scale=2.0**-8, rounds=rounds)
    kernel = f"multiply_peak_{size}" if size else "multiply_peak"
    launch = Launch(kernel, operands, scalars, (workgroups, 1, 1))
    return (launch,), 2 * each * SUMS * SUBGROUPS * workgroups * rounds
