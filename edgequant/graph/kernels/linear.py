"""What the kernels of a linear layer compute, and the operands that follow from it."""

from dataclasses import dataclass

from edgequant.graph.launch import Kind, Operand

ABSENT = Operand(Kind.STEP)  # has an address, and is not followed


@dataclass(frozen=True)
class Linear:
    """A linear layer and what is fused to it.

    The node's inputs are x[, residual], its weights w[, up][, bias][, norm before][, norm after].

    Attributes:
        columns: of x.
        rows: of the weight.
        bias: there is one.
        gated: there are two matrices; the output is SiLU(x W^T) * (x U^T).
        residual: there is one.
        before: epsilon of the RMS norm that x has yet to go through; None without.
        after: an RMS norm of the output follows.
    """

    columns: int
    rows: int
    bias: bool = False
    gated: bool = False
    residual: bool = False
    before: float | None = None
    after: bool = False

    @property
    def matrices(self) -> tuple[Operand, Operand]:
        """W and U; U is W again where there is none."""
        return Operand(Kind.WEIGHT), Operand(Kind.WEIGHT, 1 if self.gated else 0)

    @property
    def added(self) -> tuple[Operand, Operand]:
        """Bias and residual; where there is none, something that is not followed."""
        bias = Operand(Kind.WEIGHT, self._linear_weights - 1) if self.bias else ABSENT
        return bias, Operand(Kind.INPUT, 1) if self.residual else ABSENT

    @property
    def norm_before(self) -> Operand:
        """The weight of the norm before."""
        return ABSENT if self.before is None else Operand(Kind.WEIGHT, self._linear_weights)

    @property
    def norm_after(self) -> Operand:
        """The weight of the norm after."""
        index = self._linear_weights + (self.before is not None)
        return Operand(Kind.WEIGHT, index) if self.after else ABSENT

    @property
    def _linear_weights(self) -> int:
        return 1 + self.gated + self.bias
