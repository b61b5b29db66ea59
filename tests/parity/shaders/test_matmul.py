"""Linear layers with many tokens on GPUs, by cooperative matrices where there are and tiled."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from run_op import Ran, encoded, nmse, poisoned, reference, run_op
from shader_weights import FORMATS, lengths, random_weight

from edgequant.blocks import Floats
from edgequant.device.protocol import Gpu
from edgequant.formats.matrix import Matrix
from edgequant.graph.kernels import matmul
from edgequant.graph.kernels.linear import Linear
from edgequant.graph.launch import Call, Launch
from edgequant.graph.ops.fused_linear import FusedLinear

pytestmark = pytest.mark.device

# Rounding to half is off by 2^-12 to 2^-11 of a value at most: squared, evenly spread, 4e-8 of it.
# Activations and weights make twice that. A weight is a quant times a rounded scale, less a rounded
# minimum: of 4 unsigned bits, these are 130 steps squared where the weight itself is 21, which adds
# 2.5e-7. All weights of a block share that error, so a few rows may have several times as much.
HALF = 2e-6
# Sums of up to 4096 float32 products in another order.
FLOAT = 1e-11


@dataclass(frozen=True)
class Prefill(FusedLinear):
    """A FusedLinear that is multiplied as told, whatever the GPU could do."""

    tiled: bool = False

    def launch(self, call: Call) -> tuple[Launch, ...]:
        limits = replace(call.limits, cooperative_matrix=None) if self.tiled else call.limits
        linear = Linear(self.columns, self.rows, self.bias, self.gated, self.residual)
        return matmul.launches(replace(call, limits=limits), linear)


def check(
    gpu: Gpu, op: Prefill, inputs: Sequence[Floats], weights: Sequence[Matrix], bucket: int = 0
) -> Ran:
    """Run it and hold it against NumPy."""
    ran = run_op(gpu, op, inputs, weights, bucket=bucket or None)
    half = gpu.limits.cooperative_matrix is not None and not op.tiled
    assert nmse(ran.out, reference(op, inputs, weights).out) < (HALF if half else FLOAT)
    return ran


def ways(gpu: Gpu) -> tuple[bool, ...]:
    """Whether tiled: always, and where a GPU can do better, also as it does best."""
    return (True,) if gpu.limits.cooperative_matrix is None else (False, True)


@pytest.mark.parametrize("fmt", FORMATS)
def test_every_format(gpu: Gpu, fmt: str, rng: np.random.Generator) -> None:
    for columns in lengths(fmt):
        x = rng.standard_normal((9, columns), np.float32)
        weight = random_weight(fmt, 40, columns, rng)  # ends at a multiple of 16 bytes
        for tiled in ways(gpu):
            check(gpu, Prefill(columns, 40, tiled=tiled), [x], [weight])


@pytest.mark.parametrize("fmt", FORMATS)
def test_what_is_fused_to_every_format(gpu: Gpu, fmt: str, rng: np.random.Generator) -> None:
    columns = [length for length in lengths(fmt) if length < 300][-1]  # not in splits
    rows, tokens = 61, 59  # all of a tile, but for its edges
    w, up = (random_weight(fmt, rows, columns, rng) for _ in range(2))
    bias = encoded(5 * rng.standard_normal(rows, np.float32))
    x = rng.standard_normal((tokens, columns), np.float32) / 8
    residual = 5 * rng.standard_normal((tokens, rows), np.float32)
    for tiled in ways(gpu):
        op = Prefill(columns, rows, tiled=tiled)
        check(gpu, replace(op, bias=True, residual=True), [x, residual], [w, bias])
        check(gpu, replace(op, gated=True, residual=True), [x, residual], [w, up])


@pytest.mark.parametrize("tokens", [9, 33, 64])
@pytest.mark.parametrize("rows", [1, 31, 32, 33, 255, 256, 257])
def test_edges(gpu: Gpu, tokens: int, rows: int, rng: np.random.Generator) -> None:
    x = rng.standard_normal((tokens, 256), np.float32)
    weight = random_weight("Q4_K", rows, 256, rng)
    for tiled in ways(gpu):
        check(gpu, Prefill(256, rows, tiled=tiled), [x], [weight])


@pytest.mark.parametrize("rows", [30, 32, 64, 100])
def test_what_is_fused(gpu: Gpu, rows: int, rng: np.random.Generator) -> None:
    x = rng.standard_normal((16, 64), np.float32)
    w, up = (random_weight("Q8_0", rows, 64, rng) for _ in range(2))
    bias = encoded(5 * rng.standard_normal(rows, np.float32))
    residual = 5 * rng.standard_normal((16, rows), np.float32)
    for tiled in ways(gpu):
        op = Prefill(64, rows, tiled=tiled)
        check(gpu, replace(op, bias=True), [x], [w, bias])
        check(gpu, replace(op, residual=True), [x, residual], [w])
        check(gpu, replace(op, bias=True, residual=True), [x, residual], [w, bias])
        small = x / 8  # sums stay where SiLU bends
        check(gpu, replace(op, gated=True), [small], [w, up])
        check(gpu, replace(op, gated=True, residual=True), [small, residual], [w, up])


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_bucket_that_is_not_full(gpu: Gpu, fmt: str, rng: np.random.Generator) -> None:
    columns = lengths(fmt)[0]
    weight = random_weight(fmt, 40, columns, rng)
    for tokens in (33, 64):
        x = rng.standard_normal((tokens, columns), np.float32)
        for tiled in ways(gpu):
            ran = check(gpu, Prefill(columns, 40, tiled=tiled), [x], [weight], bucket=128)
            # Tiles of padding alone are left out, and none of it is rounded to half.
            assert poisoned(ran.padding[64 - tokens :])
            for halves in ran.derived.values():
                assert poisoned(halves.reshape(128, -1)[tokens:])


@pytest.mark.parametrize("rows", [37, 64])
def test_columns_in_splits(gpu: Gpu, rows: int, rng: np.random.Generator) -> None:
    x = rng.standard_normal((12, 2080), np.float32)
    weight = random_weight("Q8_0", rows, 2080, rng)
    bias = encoded(20 * rng.standard_normal(rows, np.float32))
    residual = 20 * rng.standard_normal((12, rows), np.float32)
    op = Prefill(2080, rows, bias=True, residual=True)
    ran = check(gpu, op, [x, residual], [weight, bias], bucket=16)
    if gpu.limits.cooperative_matrix is not None:
        assert ran.kernels[-1] == "matmul_parts"
        assert poisoned(ran.padding)


@pytest.mark.parametrize("fmt", FORMATS)
def test_columns_in_splits_of_every_format(gpu: Gpu, fmt: str, rng: np.random.Generator) -> None:
    columns = 1024 + lengths(fmt)[0]  # floats have some left over
    x = rng.standard_normal((9, columns), np.float32)
    ran = check(gpu, Prefill(columns, 8), [x], [random_weight(fmt, 8, columns, rng)])
    assert (ran.kernels[-1] == "matmul_parts") is (gpu.limits.cooperative_matrix is not None)


def test_halves_of_an_output(gpu: Gpu, rng: np.random.Generator) -> None:
    x = rng.standard_normal((16, 64), np.float32) / 8
    weights = [random_weight("Q8_0", 64, 64, rng) for _ in range(2)]
    wants = (matmul.halves(64, 16, -1),)
    ran = run_op(gpu, Prefill(64, 64, gated=True), [x], weights, wants=wants)
    if gpu.limits.cooperative_matrix is None:
        assert not ran.derived  # nobody reads halves there
        return
    shuffled = ran.derived["half"].view(np.float16).reshape(16, -1, 2, 2)
    halves = shuffled.swapaxes(2, 3).reshape(16, 64)
    np.testing.assert_array_equal(halves, ran.out.astype(np.float16))


def test_activations_beyond_half_stay_finite(gpu: Gpu) -> None:
    x = np.full((9, 32), 1e6, np.float32)
    weight = encoded(np.eye(32, dtype=np.float32)[:4], "F16")
    for tiled in ways(gpu):
        out = run_op(gpu, Prefill(32, 4, tiled=tiled), [x], [weight]).out
        np.testing.assert_array_equal(out, np.full((9, 4), 1e6 if tiled else 65504, np.float32))
