"""Linear layers with many tokens on GPUs, by cooperative matrices where there are and tiled."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from run_op import nmse, reference, run_op
from shader_weights import FORMATS, lengths, random_weight

from edgequant.device.protocol import Gpu
from edgequant.graph.kernels import matmul
from edgequant.graph.kernels.linear import Linear
from edgequant.graph.launch import Call, Launch
from edgequant.graph.ops.fused_linear import FusedLinear

pytestmark = pytest.mark.device

# Rounding to half is off by 2^-12 to 2^-11 of a value at most, squared and evenly spread 4e-8 of it.
# Activations and weights make twice that. A weight is a quant times a rounded scale, less a rounded
# minimum: of 4 unsigned bits, these two are 130 steps squared where the weight itself is 21, which
# adds 2.5e-7. All weights of a block share that error, so a few rows may have several times as much.
HALF = 2e-6
# Sums of up to 4096 float32 products in another order.
FLOAT = 1e-11


@dataclass(frozen=True)
class Prefill(FusedLinear):
    """A FusedLinear that takes the matmul whatever the number of tokens."""

    tiled: bool = False

    def launch(self, call: Call) -> tuple[Launch, ...]:
        limits = replace(call.limits, cooperative_matrix=None) if self.tiled else call.limits
        linear = Linear(self.columns, self.rows, self.bias, self.gated, self.residual)
        return matmul.launches(replace(call, limits=limits), linear)


def bound(gpu: Gpu, tiled: bool) -> float:
    return FLOAT if tiled or gpu.limits.cooperative_matrix is None else HALF


@pytest.mark.parametrize("tiled", [False, True], ids=["best", "tiled"])
@pytest.mark.parametrize("fmt", FORMATS)
def test_every_format(gpu: Gpu, fmt: str, tiled: bool, rng: np.random.Generator) -> None:
    for columns in lengths(fmt):
        op = Prefill(columns, 33, tiled=tiled)
        x = rng.standard_normal((9, columns), np.float32)
        weight = random_weight(fmt, 33, columns, rng)
        ran = run_op(gpu, op, [x], [weight])
        assert nmse(ran.out, reference(op, [x], [weight]).out) < bound(gpu, tiled)
