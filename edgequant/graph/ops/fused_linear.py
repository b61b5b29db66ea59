"""FusedLinear: a linear layer with what surrounds it, so that its output is written once."""

from collections.abc import Sequence
from dataclasses import dataclass

from edgequant.formats.matrix import Matrix
from edgequant.graph.graph import Shape
from edgequant.graph.kernels import matmul, matvec
from edgequant.graph.kernels.linear import Linear as LinearKernel
from edgequant.graph.launch import Call, Launch
from edgequant.graph.op import Array, Step
from edgequant.graph.ops.add import Add
from edgequant.graph.ops.bias import Bias
from edgequant.graph.ops.gate import Gate
from edgequant.graph.ops.linear import Linear


@dataclass(frozen=True)
class FusedLinear:
    """`out = x W^T`, or `SiLU(x G^T) * (x U^T)` if gated; then plus a bias, then plus a residual.

    Inputs are x, and with a residual a second value of the output's shape. Weights are (rows,
    columns) W, or the gate's and then the up-projection's; and with a bias (rows,) of it.

    Attributes:
        columns: of x.
        rows: of the weight: columns of the output.
        bias: there is one.
        gated: there are two matrices of one block type; never with a bias.
        residual: there is one.
    """

    columns: int
    rows: int
    bias: bool = False
    gated: bool = False
    residual: bool = False

    def __post_init__(self) -> None:
        if self.gated and self.bias:
            raise ValueError("fused_linear: a gated pair has no bias")

    def shape(self, x: Shape, *residual: Shape) -> Shape:
        """Return (tokens, rows)."""
        out = Linear(self.columns, self.rows).shape(x)
        if residual != ((out,) if self.residual else ()):
            raise ValueError(f"fused_linear: residual {residual} for an output of {out}")
        return out

    def reference(self, inputs: Sequence[Array], weights: Sequence[Matrix], step: Step) -> Array:
        """Compose the parts."""
        linear = Linear(self.columns, self.rows)
        out = linear.reference(inputs[:1], weights[:1], step)
        if self.gated:
            up = linear.reference(inputs[:1], weights[1:2], step)
            out = Gate().reference((out, up), (), step)
        if self.bias:
            out = Bias(self.rows).reference((out,), weights[1:], step)
        if self.residual:
            out = Add().reference((out, inputs[1]), (), step)
        return out

    def as_kernel(self, *, before: float | None = None, after: bool = False) -> LinearKernel:
        """Return what kernels know of it, and of the norms beside it."""
        return LinearKernel(
            self.columns, self.rows, self.bias, self.gated, self.residual, before, after
        )

    def launch(self, call: Call) -> tuple[Launch, ...]:
        """Return a mat-vec for few tokens, a matrix product for more."""
        linear = self.as_kernel()
        if call.inputs[0][0] <= matvec.MOST_TOKENS:
            return matvec.launches(call, linear)
        return matmul.launches(call, linear)
