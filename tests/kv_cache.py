"""The KV cache of a layer as a GPU holds it, and as NumPy sees it."""

import numpy as np
from numpy.typing import NDArray

from edgequant.blocks import Floats
from edgequant.formats import find
from edgequant.formats.format import dequantize, quantize


def stored(content: Floats, capacity: int, cache_type: str) -> bytes:
    """Return a cache of (heads_kv, capacity, head_dim) that starts with (past, heads_kv, head_dim).

    In Q8_0 all bytes come first, (heads_kv, capacity, head_dim), and then all scales.
    """
    past, heads, width = content.shape
    rows = np.ascontiguousarray(content.transpose(1, 0, 2)).reshape(-1, width)
    fmt = find(cache_type)
    raw = np.full((heads, capacity, fmt.type.row_nbytes(width)), 0xFF, np.uint8)
    if past:
        raw[:, :past] = quantize(fmt, rows).reshape(heads, past, -1)
    if cache_type == "Q8_0":
        blocks = raw.reshape(-1, fmt.type.nbytes)
        return blocks[:, 2:].tobytes() + blocks[:, :2].tobytes()
    return raw.tobytes()


def loaded(raw: NDArray[np.uint8], sizes: tuple[int, ...], cache_type: str) -> Floats:
    """Return a cache as (capacity, heads_kv, head_dim) float32."""
    heads, width = sizes
    fmt = find(cache_type)
    if cache_type == "Q8_0":
        count = raw.size // fmt.type.nbytes
        values, scales = raw[: 32 * count].reshape(-1, 32), raw[32 * count :].reshape(-1, 2)
        raw = np.concatenate([scales, values], axis=1)
    rows = dequantize(fmt, raw.reshape(-1, fmt.type.row_nbytes(width)))
    return rows.reshape(heads, -1, width).transpose(1, 0, 2)


def rounded_cache(
    rng: np.random.Generator, tokens: int, heads_kv: int, head_dim: int, cache_type: str
) -> tuple[Floats, Floats]:
    """Return keys and values, (tokens, heads_kv, head_dim), that the cache holds exactly."""
    made = []
    for _ in range(2):
        drawn = rng.standard_normal((tokens, heads_kv, head_dim), np.float32)
        raw = np.frombuffer(stored(drawn, tokens, cache_type), np.uint8)
        made.append(loaded(raw, (heads_kv, head_dim), cache_type))
    return made[0], made[1]
