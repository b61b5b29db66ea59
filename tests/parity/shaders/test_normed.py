"""Mat-vecs of one token that do the RMS norms around them, against NumPy.

What they round is held against the rounding's step, and what they compute of it against NumPy's
result for the rounded values, so that neither error hides behind the other.
"""

import numpy as np
import pytest
from gpus import ON_VULKAN
from int8_activations import read_int8, read_squares
from run_op import Memory, encoded, nmse, reference, run_launches, run_op, without
from shader_weights import random_weight

from edgequant.blocks import BLOCK_TYPES, Bytes, Floats
from edgequant.device.protocol import Gpu
from edgequant.graph.kernels import matvec
from edgequant.graph.kernels.compiled import INTEGERS
from edgequant.graph.launch import Call, Kind, Operand, Span
from edgequant.graph.ops.fused_linear import FusedLinear
from edgequant.graph.ops.normed_linear import NormedLinear

pytestmark = [pytest.mark.device, ON_VULKAN]  # Metal has no int8 kernels

EPSILON = 1e-5
# As in test_matvec.py, of what the kernel sees: the order of sums, a root and a division.
FLOAT = 1e-11


@pytest.mark.parametrize("fmt", INTEGERS)
def test_norm_before(gpu: Gpu, fmt: str, rng: np.random.Generator) -> None:
    """Nobody has derived what it reads, as after an embedding: a kernel before it does."""
    limits, columns = without(gpu.limits, integer_dot=True), 768
    op = NormedLinear(FusedLinear(columns, 33), before=EPSILON)
    weight, norm = random_weight(fmt, 33, columns, rng), rng.standard_normal(columns, np.float32)
    for size in (1e-3, 1.0, 1e4):
        x = np.float32(size) * rng.standard_normal((1, columns), np.float32)
        ran = run_op(gpu, op, [x], [weight, encoded(norm)], limits=limits)
        assert ran.kernels == ("quantize_activations", f"matvec_i8_{fmt.lower()}")
        raw = ran.derived["norm"]
        seen = _checked(raw, x, x * norm, block=32) / _root(x)
        assert nmse(ran.out, reference(op.linear, [seen], [weight]).out) < FLOAT


@pytest.mark.parametrize("columns", [64, 256, 1088, 4160, 10240])
def test_any_number_of_sums(gpu: Gpu, columns: int, rng: np.random.Generator) -> None:
    limits = without(gpu.limits, integer_dot=True)
    x, norm = rng.standard_normal((2, 1, columns), np.float32)
    weights = [random_weight("Q8_0", 8, columns, rng) for _ in range(2)]
    op = NormedLinear(FusedLinear(columns, 8, gated=True), before=EPSILON)
    ran = run_op(gpu, op, [x], [*weights, encoded(norm)], limits=limits)
    seen = _checked(ran.derived["norm"], x, x * norm, block=32) / _root(x)
    assert nmse(ran.out, reference(op.linear, [seen], weights).out) < 100 * FLOAT  # of few rows


@pytest.mark.parametrize("fmt", INTEGERS)
@pytest.mark.parametrize("rows", [64, 320])
def test_norm_after(gpu: Gpu, fmt: str, rows: int, rng: np.random.Generator) -> None:
    limits, columns = without(gpu.limits, integer_dot=True), 256
    op = NormedLinear(FusedLinear(columns, rows, bias=True, residual=True), after=True)
    weight, bias = random_weight(fmt, rows, columns, rng), rng.standard_normal(rows, np.float32)
    norm = rng.standard_normal(rows, np.float32)
    norm[16:32] = 0  # a half whose scale is zero
    weights = [weight, encoded(bias), encoded(norm)]
    x, residual = (rng.standard_normal((1, n), np.float32) for n in (columns, rows))
    ran = run_op(gpu, op, [x, residual], weights, limits=limits)
    seen = _checked(ran.derived["q8"], x, x, block=32)
    assert nmse(ran.out, reference(op, [seen, residual], weights).out) < FLOAT
    _checked(ran.derived["norm"], ran.out, ran.out * norm, block=16)


@pytest.mark.parametrize("fmt", ["Q4_K", "Q6_K"])
def test_gated_rows_rounded(gpu: Gpu, fmt: str, rng: np.random.Generator) -> None:
    limits, columns, rows = without(gpu.limits, integer_dot=True), 256, 320
    weights = [random_weight(fmt, rows, columns, rng) for _ in range(2)]
    x, wanted = (
        rng.standard_normal((1, columns), np.float32),
        matvec.quantized(1, rows, -1, writes=True),
    )
    op = FusedLinear(columns, rows, gated=True)
    ran = run_op(gpu, op, [x], weights, limits=limits, wants=[wanted])
    _checked(ran.derived["q8"], ran.out, ran.out, block=16)


@pytest.mark.parametrize("fmt", ["Q4_K", "Q6_K"])
def test_a_pair_hands_the_norm_on(gpu: Gpu, fmt: str, rng: np.random.Generator) -> None:
    """The second mat-vec reads what the first has derived, and nothing else."""
    columns, rows, out = 256, 512, 40
    limits = without(gpu.limits, integer_dot=True)
    first = NormedLinear(FusedLinear(columns, rows, residual=True), after=True)
    second = NormedLinear(FusedLinear(rows, out), before=EPSILON)
    maker, reader = random_weight(fmt, rows, columns, rng), random_weight(fmt, out, rows, rng)
    norm = encoded(rng.standard_normal(rows, np.float32))
    x, residual = (rng.standard_normal((1, n), np.float32) for n in (columns, rows))
    memory = Memory(gpu)
    contents = [x, residual, maker.weight.data, reader.weight.data, norm.weight.data]
    for name, content in zip(("x", "residual", "w", "v", "norm"), contents, strict=True):
        memory.put(name, content.tobytes())
    memory.put("step", bytes(48))
    memory.poison("y", 4 * rows)
    memory.poison("norm y", matvec.normed(rows).nbytes)
    memory.poison("out", 4 * out)
    rounded = matvec.quantized(1, columns)
    memory.poison("q8", rounded.nbytes)
    places = (
        {(Kind.INPUT, 0): "x", (Kind.INPUT, 1): "residual", (Kind.WEIGHT, 0): "w",
         (Kind.OUTPUT, 0): "y", (Kind.DERIVED, 0): "q8", (Kind.DERIVED, -1): "norm y"},
        {(Kind.WEIGHT, 0): "v", (Kind.OUTPUT, 0): "out", (Kind.DERIVED, 0): "norm y"},
    )  # fmt: skip
    call = Call(1, 1, 8, 8, (), BLOCK_TYPES["F16"], limits)
    types = (BLOCK_TYPES[fmt], BLOCK_TYPES["F32"])
    for op, inputs, place, skipped in (
        (first, ((1, columns), (1, rows)), places[0], 0),
        (second, ((1, rows),), places[1], 1),
    ):
        found = op.launch(without(call, weights=types, inputs=inputs))[skipped:]

        def where(operand: Operand, place: dict[tuple[Kind, int], str] = place) -> Span:
            name = {(Kind.WEIGHT, 1): "norm", (Kind.STEP, 0): "step"} | place
            return memory[name[operand.kind, operand.index]]

        run_launches(gpu, found, where)
    memory.check({"y", "norm y", "out", "q8"})
    y, weight = memory.get("y")[None], norm.vector()
    seen = _checked(memory.get("norm y", np.uint8), y, y * weight, block=16) / _root(y)
    assert nmse(memory.get("out")[None], reference(second.linear, [seen], [reader]).out) < FLOAT
    memory.free()


def _checked(raw: Bytes, x: Floats, rounded: Floats, *, block: int) -> Floats:
    """Return what int8 activations stand for; they must be `rounded`, with a scale a block.

    Where sums of squares follow, they must be those of x.
    """
    columns = x.shape[1]
    made = read_int8(raw, 1, columns)
    most = np.abs(rounded.reshape(-1, block)).max(1).repeat(block // 16)
    np.testing.assert_allclose(made.scales, most / 127, 1e-5)
    # Half a step, and what a division that is off by a unit in the last place can turn.
    off = np.abs(made.values - rounded.reshape(-1, 16))
    assert np.all(off <= 0.5001 * made.scales[:, None])
    if len(raw) == matvec.normed(columns).nbytes:
        squares = np.square(x).reshape(-1, 16).sum(1)
        np.testing.assert_allclose(read_squares(raw, columns), squares, 1e-5)
    return made.values.reshape(1, -1)


def _root(x: Floats) -> Floats:
    return np.sqrt(np.square(x).mean() + np.float32(EPSILON))
