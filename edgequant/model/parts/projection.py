"""A linear layer of a transformer layer, with or without a bias.

It knows its names on both sides; the part that owns it knows its sizes.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from edgequant.graph import Graph, Value
from edgequant.graph.ops.bias import Bias
from edgequant.graph.ops.linear import Linear
from edgequant.model.tensors import Role, TensorSpec, Transform, keep


@dataclass(frozen=True)
class Projection:
    """A linear layer: `role` names it on disk, `source` inside a layer of a checkpoint."""

    role: Role
    source: str

    def tensors(
        self, layer: int, shape: tuple[int, int], *, bias: bool, prepare: Transform = keep
    ) -> Iterator[TensorSpec]:
        """Yield the weight of this shape, (rows, columns), and the bias if there is one."""
        stem, source = f"blk.{layer}.{self.role.value}", f"model.layers.{layer}.{self.source}"
        yield TensorSpec(
            f"{stem}.weight", f"{source}.weight", shape, self.role, layer, prepare=prepare
        )
        if bias:
            yield TensorSpec(
                f"{stem}.bias", f"{source}.bias", shape[:1], self.role, layer, prepare=prepare
            )

    def emit(
        self, graph: Graph, x: Value, layer: int, shape: tuple[int, int], *, bias: bool
    ) -> Value:
        """Append the multiplication, and the addition if there is a bias."""
        rows, columns = shape
        stem = f"blk.{layer}.{self.role.value}"
        x = graph.add(Linear(columns, rows), x, weight=f"{stem}.weight")
        if bias:
            x = graph.add(Bias(rows), x, weight=f"{stem}.bias")
        return x
