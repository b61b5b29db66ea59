"""Mat-vec of every format against NumPy, in float32 and with int8 activations."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from gpus import ON_VULKAN
from run_op import encoded, nmse, reference, run_op, without
from shader_weights import FORMATS, lengths, random_weight

from edgequant.device.protocol import Gpu
from edgequant.graph.kernels import matvec
from edgequant.graph.kernels.compiled import FLOATS, INTEGERS
from edgequant.graph.kernels.linear import Linear
from edgequant.graph.launch import Call, Launch
from edgequant.graph.ops.fused_linear import FusedLinear

pytestmark = pytest.mark.device

ROWS = (1, 31, 32, 33, 255, 256, 257)
# A sum of n products in another order errs by about sqrt(n) roundings of 6e-8 of a product, and
# there are n products: n * (6e-8)^2 of the squares, 1e-12 at 288 columns; the scales' roundings are
# fewer.
FLOAT = 1e-11
# One row's gate may be a sum that nearly cancels, whose error is that of its terms.
CANCELLED = 1e-8


@pytest.mark.parametrize("fmt", FORMATS)
def test_float_activations(gpu: Gpu, fmt: str, rng: np.random.Generator) -> None:
    kernel = f"matvec_{fmt.lower()}"
    for columns in lengths(fmt):
        weight, op = random_weight(fmt, 33, columns, rng), FusedLinear(columns, 33)
        for tokens in (1, 5):
            x = rng.standard_normal((tokens, columns), np.float32)
            ran = run_op(gpu, op, [x], [weight], exact=True)
            assert ran.kernels == (kernel if tokens == 1 else f"{kernel}_4",)
            assert nmse(ran.out, reference(op, [x], [weight]).out) < FLOAT


@ON_VULKAN
@pytest.mark.parametrize("fmt", INTEGERS)
def test_int8_activations(gpu: Gpu, fmt: str, rng: np.random.Generator) -> None:
    limits = without(gpu.limits, integer_dot=True)
    for columns in lengths(fmt):
        weight = random_weight(fmt, 33, columns, rng)
        op, x = FusedLinear(columns, 33), rng.standard_normal((1, columns), np.float32)
        ran = run_op(gpu, op, [x], [weight], limits=limits)
        assert ran.kernels == ("quantize_activations", f"matvec_i8_{fmt.lower()}")
        # Against what the kernel sees, so that its own error does not hide behind the rounding's.
        assert nmse(ran.out, reference(op, [_as_int8(x)], [weight]).out) < FLOAT


@pytest.mark.parametrize("rows", ROWS)
def test_rows_and_epilogues(gpu: Gpu, rows: int, rng: np.random.Generator) -> None:
    check_rows_and_epilogues(gpu, rows, True, rng)


@ON_VULKAN
@pytest.mark.parametrize("rows", ROWS)
def test_rows_and_epilogues_int8(gpu: Gpu, rows: int, rng: np.random.Generator) -> None:
    check_rows_and_epilogues(gpu, rows, False, rng)


def check_rows_and_epilogues(gpu: Gpu, rows: int, exact: bool, rng: np.random.Generator) -> None:
    columns, limits = 256, without(gpu.limits, integer_dot=True)
    w, up = (random_weight("Q4_K", rows, columns, rng) for _ in range(2))
    bias = encoded(rng.standard_normal(rows, np.float32))
    for tokens in (1, 5):  # five: four together, and one
        x = rng.standard_normal((tokens, columns), np.float32)
        residual = rng.standard_normal((tokens, rows), np.float32)
        for op, weights in (
            (FusedLinear(columns, rows, bias=True, residual=True), [w, bias]),
            (FusedLinear(columns, rows, gated=True), [w, up]),
            (FusedLinear(columns, rows, gated=True, residual=True), [w, up]),
        ):
            inputs = [x, residual] if op.residual else [x]
            seen = [x if exact else _as_int8(x), *inputs[1:]]
            ran = run_op(gpu, op, inputs, weights, limits=limits, exact=exact)
            bound = CANCELLED if rows == 1 else FLOAT
            assert nmse(ran.out, reference(op, seen, weights).out) < bound


@dataclass(frozen=True)
class Spread(FusedLinear):
    """A FusedLinear that is spread over threads as told, in floats."""

    tuning: matvec.Tuning | None = None

    def launch(self, call: Call) -> tuple[Launch, ...]:
        linear = Linear(self.columns, self.rows, self.bias, self.gated, self.residual)
        return matvec.launches(replace(call, exact=True), linear, self.tuning)


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize(("subgroups", "team"), [(8, 1), (4, 2)])
def test_spreads(gpu: Gpu, fmt: str, subgroups: int, team: int, rng: np.random.Generator) -> None:
    """Whatever a tuning chooses: rows left over in a workgroup, several sums of a team."""
    lanes, columns = gpu.limits.subgroup, 2304  # more units than a subgroup has lanes
    columns += 3 if fmt in FLOATS else 0  # which are left over
    rows = 36  # not whole workgroups, and what follows the last of them is seen by a bias
    weights = [random_weight(fmt, rows, columns, rng) for _ in range(2)]
    for tokens in (1, 5):
        each = team if tokens == 1 else 1
        tuning = matvec.Tuning(subgroups * lanes, team * lanes, each)
        x = rng.standard_normal((tokens, columns), np.float32)
        residual = rng.standard_normal((tokens, rows), np.float32)
        bias = encoded(rng.standard_normal(rows, np.float32))
        plain = Spread(columns, rows, bias=True, residual=True, tuning=tuning)
        gated = Spread(columns, rows, gated=True, tuning=tuning)
        for op, inputs, given in (
            (plain, [x, residual], [weights[0], bias]),
            (gated, [x], weights),
        ):
            ran = run_op(gpu, op, inputs, given)
            assert nmse(ran.out, reference(op, inputs, given).out) < 10 * FLOAT


@ON_VULKAN
def test_activations_of_zeros_and_of_one_sign(gpu: Gpu, rng: np.random.Generator) -> None:
    limits = without(gpu.limits, integer_dot=True)
    weight, op = random_weight("Q6_K", 8, 512, rng), FusedLinear(512, 8)
    for x in (np.zeros((1, 512), np.float32), np.ones((2, 512), np.float32)):
        ran = run_op(gpu, op, [x], [weight], limits=limits)
        np.testing.assert_allclose(
            ran.out, reference(op, [x], [weight]).out, rtol=1e-5, atol=1e-4 * x.max()
        )


def _as_int8(x: np.ndarray) -> np.ndarray:
    """Round as `quantize_activations` does, but for the last bit of a scale."""
    blocks = x.reshape(-1, 32)
    most = np.abs(blocks).max(1, keepdims=True)
    inverse = np.divide(np.float32(127), most, out=np.zeros_like(most), where=most > 0)
    return (np.rint(blocks * inverse) * (most / np.float32(127))).reshape(x.shape)
