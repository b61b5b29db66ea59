"""Norms, sums, gates and copies against NumPy: float32 in another order of adding."""

import numpy as np
import pytest
from run_op import encoded, nmse, reference, run_op

from edgequant.device.protocol import Gpu
from edgequant.graph.ops.add import Add
from edgequant.graph.ops.bias import Bias
from edgequant.graph.ops.gate import Gate
from edgequant.graph.ops.rms_norm import RmsNorm
from edgequant.graph.ops.rows import Rows

pytestmark = pytest.mark.device

COLUMNS = (1, 31, 32, 33, 255, 256, 257, 1024, 4100)
# One rounding of float32 is 6e-8 of a value: squared, 3.6e-15. A norm sums up to 16,384 squares in
# some order and takes a root, exp is good to a few units of the last place: 100 roundings at most.
BOUND = 1e-11


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("op", [Add(), Gate()], ids=["add", "gate"])
def test_two_values(gpu: Gpu, op: Add | Gate, columns: int, rng: np.random.Generator) -> None:
    for tokens, bucket in ((1, 1), (3, 8), (9, 9)):
        inputs = [4 * rng.standard_normal((tokens, columns), np.float32) for _ in range(2)]
        ran = run_op(gpu, op, inputs, bucket=bucket)
        assert nmse(ran.out, reference(op, inputs).out) < BOUND


def test_gate_of_large_values(gpu: Gpu) -> None:
    a = np.array([[-200, -100, -88, -20, -0.0, 0, 20, 88, 100, 200]], np.float32)
    ran = run_op(gpu, Gate(), [a, np.ones_like(a)])
    np.testing.assert_allclose(ran.out, reference(Gate(), [a, np.ones_like(a)]).out, 1e-5, 1e-36)


@pytest.mark.parametrize("columns", COLUMNS)
def test_bias(gpu: Gpu, columns: int, rng: np.random.Generator) -> None:
    x = rng.standard_normal((5, columns), np.float32)
    weight = encoded(rng.standard_normal(columns, np.float32))
    ran = run_op(gpu, Bias(columns), [x], [weight], bucket=8)
    assert nmse(ran.out, reference(Bias(columns), [x], [weight]).out) < BOUND


@pytest.mark.parametrize("columns", COLUMNS)
def test_rows(gpu: Gpu, columns: int, rng: np.random.Generator) -> None:
    for tokens, rows, bucket, rows_bucket in (
        (1, 1, 1, 1),
        (5, 2, 8, 2),
        (5, 1, 8, 8),
        (9, 9, 9, 9),
    ):
        x = rng.standard_normal((tokens, columns), np.float32)
        ran = run_op(gpu, Rows(), [x], rows=rows, bucket=bucket, rows_bucket=rows_bucket)
        np.testing.assert_array_equal(ran.out, x[tokens - rows :])


@pytest.mark.parametrize("width", [*COLUMNS, 16384])
def test_rms_norm_of_rows(gpu: Gpu, width: int, rng: np.random.Generator) -> None:
    op = RmsNorm(width, 1e-5)
    for scale in (1e-3, 1.0, 1e4):
        x = rng.standard_normal((3, width), np.float32) * np.float32(scale)
        weight = encoded(rng.standard_normal(width, np.float32))
        ran = run_op(gpu, op, [x], [weight], bucket=4)
        assert nmse(ran.out, reference(op, [x], [weight]).out) < BOUND


@pytest.mark.parametrize(
    ("width", "heads"), [(1, 3), (33, 5), (64, 32), (80, 2), (128, 8), (256, 4)]
)
def test_rms_norm_of_heads(gpu: Gpu, width: int, heads: int, rng: np.random.Generator) -> None:
    op = RmsNorm(width, 1e-6)
    x = rng.standard_normal((9, width * heads), np.float32)
    weight = encoded(rng.standard_normal(width, np.float32))
    ran = run_op(gpu, op, [x], [weight], bucket=16)
    assert nmse(ran.out, reference(op, [x], [weight]).out) < BOUND
