"""What an op is: its shape rule and its meaning in NumPy.

An op is a frozen dataclass in a file of its own under `ops/`; its fields are what is fixed when the
graph is recorded. `reference` is the definition every kernel is held against. What a GPU kernel
receives (`launch.py`) joins each op's file with the kernels.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from edgequant.formats.matrix import Matrix

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
        rows: how many of the last tokens' logits are wanted, 1..n.
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
