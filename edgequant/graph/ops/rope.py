"""Rope: rotate pairs of each head by an angle that grows with the position."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from edgequant.blocks import Floats
from edgequant.formats.matrix import Matrix
from edgequant.graph.graph import Shape
from edgequant.graph.kernels import rotate_store
from edgequant.graph.kernels.cache import Rotation
from edgequant.graph.launch import Call, Launch
from edgequant.graph.op import Array, Step


def frequencies(base: float, head_dim: int, stretch: float = 1.0) -> Floats:
    """Return the angle per position of each pair, (head_dim / 2,) float32: base^(-2i/head_dim).

    Rounded where transformers rounds (modeling_rope_utils.py, 5.24): the exponent, the power, its
    inverse and the division by `stretch` are each float32, since at position 10,000 one unit in the
    last place of a frequency turns the pair by 6e-4.
    """
    exponent = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    power = np.power(np.float64(np.float32(base)), exponent.astype(np.float64)).astype(np.float32)
    return np.float32(1) / power / np.float32(stretch)


@lru_cache(maxsize=4)
def frequency_table(base: float, head_dim: int, stretch: float) -> bytes:
    """Return `frequencies` as kernels take them; all layers of a model take the same."""
    return frequencies(base, head_dim, stretch).tobytes()


@lru_cache(maxsize=4)
def _turns(per_position: bytes, past: int, tokens: int) -> tuple[Array, Array]:
    """Return cosine and sine, (tokens, 1, head_dim / 2); all layers of a step turn alike."""
    positions = np.arange(past, past + tokens, dtype=np.float32)
    angles = np.multiply.outer(positions, np.frombuffer(per_position, np.float32))
    exact = angles[:, None, :].astype(np.float64)
    return np.cos(exact).astype(np.float32), np.sin(exact).astype(np.float32)


@dataclass(frozen=True)
class Rope:
    """Rotate pair i of each head at position p by `p * frequency[i] / weight[i]`.

    Su et al., "RoFormer", 2021. The weight, (head_dim / 2,), is optional: rope_freqs of llama3
    scaling.

    Attributes:
        head_dim: width of a head, even; the input is whole heads.
        base: theta.
        interleaved: pairs are neighbours (2i, 2i + 1), GGUF's order for llama; otherwise they are
            halves (i, i + head_dim / 2), Hugging Face's order.
        stretch: of linear scaling; divides all frequencies.
    """

    head_dim: int
    base: float
    interleaved: bool
    stretch: float = 1.0

    def shape(self, x: Shape) -> Shape:
        """Return the input's shape."""
        if not isinstance(x[-1], int) or x[-1] % self.head_dim:
            raise ValueError(f"rope: {x[-1]} columns are not whole heads of {self.head_dim}")
        return x

    def reference(self, inputs: Sequence[Array], weights: Sequence[Matrix], step: Step) -> Array:
        """Rotate; angles are float32 products, their sine and cosine exact to the last bit."""
        return self._turn(inputs[0], weights, step, forward=True)

    def gradient(
        self,
        _inputs: Sequence[Array],
        weights: Sequence[Matrix],
        step: Step,
        out: Array,
        _totals: Sequence[Array],
    ) -> tuple[Array, ...]:
        """Rotate back; the weight is fixed."""
        return (self._turn(out, weights, step, forward=False),)

    def _turn(self, x: Array, weights: Sequence[Matrix], step: Step, *, forward: bool) -> Array:
        per_position = frequencies(self.base, self.head_dim, self.stretch)
        for weight in weights:
            per_position = per_position / weight.vector()
        cos, sin = _turns(per_position.tobytes(), step.past, len(x))
        if not forward:
            sin = -sin
        heads = x.reshape(len(x), -1, self.head_dim)
        out = np.empty_like(heads)
        half = self.head_dim // 2
        if self.interleaved:
            first, second = (..., slice(0, None, 2)), (..., slice(1, None, 2))
        else:
            first, second = (..., slice(0, half)), (..., slice(half, None))
        a, b = heads[first], heads[second]
        out[first] = a * cos - b * sin
        out[second] = b * cos + a * sin
        return out.reshape(x.shape)

    def launch(self, call: Call) -> tuple[Launch, ...]:
        """One launch, of queries alone, as far as the kernel is concerned."""
        return rotate_store.launches(
            call,
            rotate_store.Heads(call.inputs[0][1] // self.head_dim, 0, self.head_dim),
            self.rotation(bool(call.weights)),
        )

    def rotation(self, factors: bool, epsilon: float | None = None) -> Rotation:
        """Return it as kernels take it, after a norm with `epsilon`."""
        table = frequency_table(self.base, self.head_dim, self.stretch)
        return Rotation(table, self.interleaved, epsilon, factors)
