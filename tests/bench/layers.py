"""A linear layer to measure kernels on; what a benchmark tries is its own business."""

from dataclasses import dataclass

from edgequant.graph.kernels.linear import Linear


@dataclass(frozen=True)
class Case:
    """One shape in one format."""

    label: str
    fmt: str
    rows: int
    columns: int
    gated: bool = False
    residual: bool = False

    @property
    def linear(self) -> Linear:
        """The layer, with what is fused to it."""
        return Linear(self.columns, self.rows, gated=self.gated, residual=self.residual)
