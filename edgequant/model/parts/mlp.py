"""The gated feed-forward layer: down(SiLU(gate(x)) * up(x))."""

from collections.abc import Iterator
from dataclasses import dataclass

from edgequant.graph import Graph, Value
from edgequant.graph.ops.gate import Gate
from edgequant.model.hparams import HParams
from edgequant.model.parts.projection import Projection
from edgequant.model.tensors import Role, TensorSpec

GATE = Projection(Role.FFN_GATE, "mlp.gate_proj")
UP = Projection(Role.FFN_UP, "mlp.up_proj")
DOWN = Projection(Role.FFN_DOWN, "mlp.down_proj")


@dataclass(frozen=True)
class GatedMlp:
    """SwiGLU; all three layers have a bias if `h.mlp_bias`."""

    def tensors(self, h: HParams, layer: int) -> Iterator[TensorSpec]:
        """Yield gate, up and down."""
        for projection in (GATE, UP):
            yield from projection.tensors(layer, (h.ffn, h.embed), bias=h.mlp_bias)
        yield from DOWN.tensors(layer, (h.embed, h.ffn), bias=h.mlp_bias)

    def emit(self, graph: Graph, x: Value, h: HParams, layer: int) -> Value:
        """Append the three multiplications and the gate."""
        gate = GATE.emit(graph, x, layer, (h.ffn, h.embed), bias=h.mlp_bias)
        up = UP.emit(graph, x, layer, (h.ffn, h.embed), bias=h.mlp_bias)
        hidden = graph.add(Gate(), gate, up)
        return DOWN.emit(graph, hidden, layer, (h.embed, h.ffn), bias=h.mlp_bias)
