"""What kernels around the KV cache share: which heads fit, and how queries and keys are rotated."""

from collections.abc import Sequence
from dataclasses import dataclass

from edgequant.blocks import BlockType
from edgequant.errors import UnsupportedError
from edgequant.graph.launch import Kind, Operand

WIDEST = 256  # of a head: what registers and shared memory hold
WIDEST_FLOATS = 192  # the same, with a cache in F32
STEP = Operand(Kind.STEP)  # also fills the place of a pointer that is not followed
RESULT = Operand(Kind.OUTPUT, reads=False, writes=True)


@dataclass(frozen=True)
class Rotation:
    """What happens to each head of queries and keys before it is used.

    Weights of the node are [query norm, key norm,] [factors], all F32.

    Attributes:
        frequencies: (head_dim / 2,) float32, radians per position; empty does not rotate.
        interleaved: pairs are neighbours, not halves.
        epsilon: of the norms; None without.
        factors: what frequencies are divided by is the last weight.
    """

    frequencies: bytes = b""
    interleaved: bool = True
    epsilon: float | None = None
    factors: bool = False

    def operands(self) -> tuple[Operand, Operand, Operand, Operand]:
        """Return query norm, key norm, frequencies and factors."""
        norms = 0 if self.epsilon is None else 2
        return (
            Operand(Kind.WEIGHT, 0) if norms else STEP,
            Operand(Kind.WEIGHT, 1) if norms else STEP,
            Operand(Kind.TABLE, content=self.frequencies) if self.frequencies else STEP,
            Operand(Kind.WEIGHT, norms) if self.factors else STEP,
        )

    def constants(self) -> tuple[int, int, int]:
        """Return whether it is interleaved, normed and scaled."""
        return int(self.interleaved), int(self.epsilon is not None), int(self.factors)


def check_head_dim(head_dim: int, cache: BlockType) -> None:
    """Refuse a head that kernels cannot take, or that is not whole blocks of the cache.

    Raises:
        UnsupportedError: with both numbers.
    """
    widest = WIDEST_FLOATS if cache.name == "F32" else WIDEST
    if head_dim > widest or head_dim % 8:
        raise UnsupportedError(
            f"attention: heads of {head_dim} values; a GPU takes multiples of 8 up to {widest} "
            f"with a KV cache in {cache.name}.",
            hint="use --device cpu.",
        )
    if head_dim % cache.weights:
        raise UnsupportedError(
            f"attention: heads of {head_dim} values; a KV cache in {cache.name} takes multiples "
            f"of {cache.weights}.",
            hint="use --cache-type f16.",
        )


def check_weights(weights: Sequence[BlockType]) -> None:
    """Refuse norms and factors that are not F32.

    Raises:
        UnsupportedError: with the type.
    """
    for weight in weights:
        if weight.name != "F32":
            raise UnsupportedError(
                f"rope: a norm or frequencies in {weight.name}; GPUs take F32.",
                hint="use --device cpu.",
            )
