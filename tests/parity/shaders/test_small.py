"""Norms, sums, gates and copies against NumPy: float32 in another order of adding."""

import numpy as np
import pytest
from int8_activations import read_int8
from run_op import encoded, nmse, poisoned, reference, run_op

from edgequant.device.protocol import Gpu
from edgequant.errors import UnsupportedError
from edgequant.graph.kernels import matmul, matvec
from edgequant.graph.ops.add import Add
from edgequant.graph.ops.bias import Bias
from edgequant.graph.ops.gate import Gate
from edgequant.graph.ops.rms_norm import RmsNorm
from edgequant.graph.ops.rows import Rows

pytestmark = pytest.mark.device

COLUMNS = (1, 31, 32, 33, 255, 256, 257, 1024, 4101)
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
        assert poisoned(ran.padding)


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


@pytest.mark.parametrize("tokens", [1, 8])
@pytest.mark.parametrize("width", [32, 96, 2048, 4128])
def test_rms_norm_rounded_to_int8(
    gpu: Gpu, width: int, tokens: int, rng: np.random.Generator
) -> None:
    op = RmsNorm(width, 1e-5)
    x = rng.standard_normal((tokens, width), np.float32) * np.float32(3)
    x[0, :32] = 0  # a block whose scale is zero
    weight = encoded(rng.standard_normal(width, np.float32))
    wanted = matvec.quantized(tokens, width, -1, writes=True)
    ran = run_op(gpu, op, [x], [weight], wants=[wanted])
    assert nmse(ran.out, reference(op, [x], [weight]).out) < BOUND
    made = read_int8(ran.derived["q8"], tokens, width)
    most = np.abs(ran.out.reshape(-1, 32)).max(1).repeat(2)
    np.testing.assert_allclose(made.scales, most / 127, 1e-6)
    # Half a step, and what a division that is off by a unit in the last place can turn.
    assert np.all(np.abs(made.values - ran.out.reshape(-1, 16)) <= 0.5001 * made.scales[:, None])


@pytest.mark.parametrize("width", [64, 1024, 4160])
def test_rms_norm_rounded_to_half(gpu: Gpu, width: int, rng: np.random.Generator) -> None:
    op = RmsNorm(width, 1e-5)
    x = rng.standard_normal((9, width), np.float32)
    weight = encoded(rng.standard_normal(width, np.float32))
    wanted = matmul.halves(width, 16, -1)
    ran = run_op(gpu, op, [x], [weight], bucket=16, wants=[wanted])
    shuffled = ran.derived["half"].view(np.float16).reshape(16, -1, 2, 2)
    halves = shuffled.swapaxes(2, 3).reshape(16, width)[:9]
    np.testing.assert_array_equal(halves, ran.out.astype(np.float16))


def test_roundings_that_do_not_fit_are_left_to_others(gpu: Gpu, rng: np.random.Generator) -> None:
    x = rng.standard_normal((1, 48), np.float32)
    weight = encoded(np.ones(48, np.float32))
    wants = [matvec.quantized(1, 48, -1, writes=True), matmul.halves(48, 1, -1)]
    assert not run_op(gpu, RmsNorm(48, 1e-5), [x], [weight], wants=wants).derived


@pytest.mark.parametrize("op", [RmsNorm(32, 1e-5), Bias(32)])
def test_a_vector_in_another_format_is_refused(gpu: Gpu, op: RmsNorm | Bias) -> None:
    weight = encoded(np.ones(32, np.float32), "F16")
    with pytest.raises(UnsupportedError, match="F32, not as F16"):
        run_op(gpu, op, [np.ones((1, 32), np.float32)], [weight])
