"""What an op is: its shape rule, its meaning in NumPy, and its kernels.

An op is a frozen dataclass in a file of its own under `ops/`; its fields are what is fixed when the
graph is recorded. `reference` is the definition every kernel is held against. An op that GPUs run
is `Launchable`; one that is always rewritten into another (`fuse.py`) need not be.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from edgequant.formats.matrix import Matrix
from edgequant.graph.launch import Call, Launch

if TYPE_CHECKING:
    from edgequant.graph.graph import Shape

Array = NDArray[np.float32]
Cache = Mapping[int, tuple[Array, Array]]  # layer -> keys and values, (context, heads_kv, head_dim)


@dataclass(frozen=True)
class Step:
    """One call of a program: what changes between two runs of the same graph.

    Attributes:
        tokens: (n,) the ids of this call.
        past: how many tokens are in the KV cache already.
        rows: how many of the last tokens' logits are wanted, 0..n.
        cache: the KV cache, written by `StoreKV` and read by `Attention`.
    """

    tokens: NDArray[np.int32]
    past: int
    rows: int
    cache: Cache


class Op(Protocol):
    """A node's operation."""

    @property
    def shape(self) -> Callable[..., "Shape"]:
        """A method, shapes of the inputs -> shape of the output; ValueError where they do not fit.

        Each op names its inputs; a misfit is a bug of ours, since sizes are checked before.
        """
        ...

    def reference(self, inputs: Sequence[Array], weights: Sequence[Matrix], step: Step) -> Array:
        """Compute the output in float32."""
        ...


@runtime_checkable
class Differentiable(Op, Protocol):
    """An op whose gradient is known, so that weights before it can be tuned (`tape.py`)."""

    def gradient(
        self,
        inputs: Sequence[Array],
        weights: Sequence[Matrix],
        step: Step,
        out: Array,
        totals: Sequence[Array],
    ) -> tuple[Array, ...]:
        """Return the gradient of each input, of a step that began with an empty cache.

        Args:
            inputs: as `reference` had them.
            weights: likewise.
            step: likewise.
            out: the gradient of the output, of its shape.
            totals: one a weight, of its shape: what its gradient is added to. An op whose weight
                is fixed adds nothing.
        """
        ...


@runtime_checkable
class Launchable(Op, Protocol):
    """An op with kernels."""

    def launch(self, call: Call) -> tuple[Launch, ...]:
        """Return the kernels that compute it, in order; none where nothing is to be done."""
        ...
