"""What is launched to measure how fast a device multiplies."""

import pytest

from edgequant.graph.kernels.multiply_peak import launches
from edgequant.graph.launch import Limits


@pytest.mark.parametrize(
    ("matrix", "lanes", "kernel", "each"),
    [
        ((16, 16, 16), 32, "multiply_peak_16", 16**3),
        ((8, 8, 8), 32, "multiply_peak_8_lanes32", 8**3),
        ((8, 8, 8), 8, "multiply_peak_8", 8**3),
        ((16, 16, 16), 64, "multiply_peak", 4 * 32),
        (None, 32, "multiply_peak", 4 * 32),
    ],
)
def test_matrices_that_are_compiled_are_multiplied(
    matrix: tuple[int, int, int] | None, lanes: int, kernel: str, each: int
) -> None:
    limits = Limits(lanes, 1024, 32 << 10, 1 << 32, cooperative_matrix=matrix, integer_dot=False)
    (launch,), operations = launches(limits, workgroups=3, rounds=5)
    assert (launch.kernel, launch.workgroups) == (kernel, (3, 1, 1))
    assert operations == 2 * each * 8 * 4 * 3 * 5
