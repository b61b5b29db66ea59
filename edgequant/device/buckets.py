"""The sizes recordings are made for: a step takes the smallest that holds it.

Tokens beyond those of the step are padding: computed, and never seen.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

BATCHES = (1, 8, 64, 512)  # tokens: of decode, of mat-vecs of several columns, of matmuls
CONTEXT = 512  # tokens of the smallest context bucket; the others double it


@dataclass(frozen=True)
class Bucket:
    """What a recording holds: at most so many tokens, rows of logits, and tokens attended to."""

    tokens: int
    rows: int
    context: int


def smallest(count: int, sizes: Sequence[int]) -> int:
    """Return the smallest of the ascending sizes that holds `count`."""
    return next(size for size in sizes if size >= count)


def batches(context: int) -> tuple[int, ...]:
    """Return the batch sizes that a context of so many tokens needs, ascending."""
    return tuple(
        size for size, before in zip(BATCHES, (0, *BATCHES), strict=False) if before < context
    )


def context_of(tokens: int, capacity: int) -> int:
    """Return the context bucket that holds so many tokens; `capacity` is the largest."""
    size = CONTEXT
    while size < tokens:
        size *= 2
    return min(size, capacity)


def contexts(capacity: int) -> tuple[int, ...]:
    """Return the context buckets of a cache that holds `capacity` tokens, ascending."""
    sizes = [context_of(1, capacity)]
    while sizes[-1] < capacity:
        sizes.append(context_of(sizes[-1] + 1, capacity))
    return tuple(sizes)


def cut(count: int, sizes: Sequence[int]) -> Iterator[int]:
    """Yield the lengths of the steps that feed `count` tokens.

    What is left goes into one padded step if that is at least half full or small, since a step of
    a bucket takes as long however full it is; otherwise into steps of the bucket below.

    Args:
        count: at least 1.
        sizes: of the batch buckets, ascending.
    """
    while count:
        most = smallest(min(count, sizes[-1]), sizes)
        below = [size for size in sizes if 8 < size < most]
        if below and 2 * count <= most:
            most = below[-1]
        yield min(count, most)
        count -= min(count, most)
