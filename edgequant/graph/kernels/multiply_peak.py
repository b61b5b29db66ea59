"""`multiply_peak`: products of registers alone, to measure how fast a device can multiply."""

import math

from edgequant.graph.launch import Arguments, Kind, Launch, Limits, Operand

MULTIPLY_PEAK = Arguments(
    "MultiplyPeakArgs", (("made", "float"),), (("scale", "float"), ("rounds", "uint"))
)
# By (M, N, K) of cooperative matrices and the lanes of a subgroup.
KERNELS = {
    ((16, 16, 16), 32): "multiply_peak_16",
    ((8, 8, 8), 32): "multiply_peak_8_lanes32",
    ((8, 8, 8), 8): "multiply_peak_8",
}
LANES = 32  # threads that count as a subgroup where there are none
SUBGROUPS, SUMS = 4, 8  # of a workgroup, and of a subgroup or thread, as in the shader


def launches(limits: Limits, workgroups: int, rounds: int) -> tuple[tuple[Launch, ...], int]:
    """Return the launch, and the operations it does: a product and a sum are two."""
    matrix = limits.cooperative_matrix or (0, 0, 0)
    kernel = KERNELS.get((matrix, limits.subgroup))
    each = math.prod(matrix) if kernel else 4 * LANES
    operands = (Operand(Kind.OUTPUT, reads=False, writes=True),)
    scalars = MULTIPLY_PEAK.pack(scale=2.0**-8, rounds=rounds)
    launch = Launch(kernel or "multiply_peak", operands, scalars, (workgroups, 1, 1))
    return (launch,), 2 * each * SUMS * SUBGROUPS * workgroups * rounds
