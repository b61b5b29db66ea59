"""RotateAttend: norm, rotate and store queries, keys and values, and attend, in one go."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from edgequant.formats.matrix import Matrix
from edgequant.graph.graph import Shape
from edgequant.graph.kernels import attention
from edgequant.graph.launch import Call, Kind, Launch, Operand
from edgequant.graph.op import Array, Step
from edgequant.graph.ops.attention import Attention
from edgequant.graph.ops.rotate_store import RotateStore


@dataclass(frozen=True)
class RotateAttend:
    """`Attention` of what `RotateStore` makes; inputs and weights are those of `rotate`."""

    label: ClassVar[str] = "attention"  # for profiles: the weights it reads say little

    rotate: RotateStore

    @property
    def layer(self) -> int:
        """Of the cache."""
        return self.rotate.layer

    @property
    def heads_kv(self) -> int:
        """Of the cache."""
        return self.rotate.heads_kv

    @property
    def head_dim(self) -> int:
        """Of all heads."""
        return self.rotate.head_dim

    @property
    def attend(self) -> Attention:
        """The part after the rotation."""
        r = self.rotate
        return Attention(r.layer, r.heads, r.heads_kv, r.head_dim)

    def shape(self, queries: Shape, keys: Shape, values: Shape) -> Shape:
        """Return the queries' shape."""
        return self.attend.shape(self.rotate.shape(queries, keys, values), (0,))

    def reference(self, inputs: Sequence[Array], weights: Sequence[Matrix], step: Step) -> Array:
        """Compose the parts."""
        rotated = self.rotate.reference(inputs, weights, step)
        return self.attend.reference((rotated, rotated), (), step)

    def launch(self, call: Call) -> tuple[Launch, ...]:
        """For one token, attention's launches, which do it all; else the parts' launches."""
        if call.tokens == 1:
            return attention.launches(call, self.attend.as_heads, self.rotate.rotation)
        nbytes = 4 * call.tokens * call.inputs[0][1]
        rotated = Operand(Kind.SCRATCH, 1, nbytes=nbytes)
        made = replace(rotated, reads=False, writes=True)
        return (
            *_instead(self.rotate.launch(call), Kind.OUTPUT, made),
            *_instead(self.attend.launch(call), Kind.INPUT, rotated),
        )


def _instead(launches: Sequence[Launch], kind: Kind, operand: Operand) -> list[Launch]:
    """Put an operand in the place of all of a kind."""
    return [
        replace(launch, operands=tuple(operand if o.kind is kind else o for o in launch.operands))
        for launch in launches
    ]
