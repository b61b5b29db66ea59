"""NormedLinear: a linear layer that does the RMS norms around it, for one token on GPUs."""

from collections.abc import Sequence
from dataclasses import dataclass

from edgequant.formats.matrix import Matrix
from edgequant.graph.graph import Shape
from edgequant.graph.kernels import matvec, vector
from edgequant.graph.launch import Call, Launch
from edgequant.graph.op import Array, Step
from edgequant.graph.ops.fused_linear import FusedLinear
from edgequant.graph.ops.rms_norm import RmsNorm


@dataclass(frozen=True)
class NormedLinear:
    """`linear` of its first input as an RMS norm leaves it.

    Inputs are those of `linear`. Weights too; then follow the weight of the norm before, and of the
    one that others apply to the output, which is computed as if there were none: kernels use it to
    derive what these others read.

    Attributes:
        linear: the layer.
        before: epsilon of the norm of the whole input; None without.
        after: a norm follows.
    """

    linear: FusedLinear
    before: float | None = None
    after: bool = False

    def shape(self, x: Shape, *residual: Shape) -> Shape:
        """Return (tokens, rows)."""
        return self.linear.shape(x, *residual)

    def reference(self, inputs: Sequence[Array], weights: Sequence[Matrix], step: Step) -> Array:
        """Compose the parts."""
        x = inputs[0]
        if self.before is not None:
            norm = RmsNorm(self.linear.columns, self.before)
            x = norm.reference((x,), weights[self._own : self._own + 1], step)
        return self.linear.reference((x, *inputs[1:]), weights[: self._own], step)

    def launch(self, call: Call) -> tuple[Launch, ...]:
        """Return a mat-vec; before it, what it reads, if nobody before has derived that.

        Raises:
            ValueError: the call is of several tokens, or not in integers.
        """
        vector.check("norm", call.weights[self._own :])
        kernel = self.linear.as_kernel(before=self.before, after=self.after)
        return matvec.launches(call, kernel)

    @property
    def _own(self) -> int:
        """Weights of the linear layer itself."""
        return 1 + self.linear.gated + self.linear.bias
