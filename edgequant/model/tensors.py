"""What a tensor of a model is for: its role, its shape, and how it is made from a checkpoint.

A role's value is the stem of the tensor's name on disk, so that files of architectures we do not
know can be read too: `role_of("blk.3.attn_v.weight")` is `Role.ATTN_V` in layer 3.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from edgequant.blocks import Floats

Read = Callable[[int, int], NDArray[np.generic]]  # rows start..stop of a source tensor


class Role(Enum):
    """What a tensor is for; the value is its stem in GGUF names."""

    EMBED = "token_embd"
    OUTPUT = "output"
    OUTPUT_NORM = "output_norm"
    ROPE_FREQS = "rope_freqs"
    ATTN_NORM = "attn_norm"
    ATTN_Q = "attn_q"
    ATTN_K = "attn_k"
    ATTN_V = "attn_v"
    ATTN_QKV = "attn_qkv"
    ATTN_OUTPUT = "attn_output"
    ATTN_Q_NORM = "attn_q_norm"
    ATTN_K_NORM = "attn_k_norm"
    FFN_NORM = "ffn_norm"
    FFN_GATE = "ffn_gate"
    FFN_UP = "ffn_up"
    FFN_DOWN = "ffn_down"
    FFN_ROUTER = "ffn_gate_inp"
    FFN_GATE_EXPERTS = "ffn_gate_exps"
    FFN_UP_EXPERTS = "ffn_up_exps"
    FFN_DOWN_EXPERTS = "ffn_down_exps"
    OTHER = ""


_LAYER = re.compile(r"blk\.(\d+)\.(.+)")


def role_of(name: str) -> tuple[Role, int | None]:
    """Return the role and the layer that a name on disk says; unknown stems are `Role.OTHER`."""
    match = _LAYER.fullmatch(name)
    layer, rest = (int(match[1]), match[2]) if match else (None, name)
    stem = rest.rpartition(".")[0]
    try:
        return Role(stem), layer
    except ValueError:
        return Role.OTHER, layer


# What conversion does to a source tensor, one row chunk at a time: from a reader of the source, its
# shape, and start and stop, it makes rows start..stop of the result.
Transform = Callable[[Read, tuple[int, ...], int, int], NDArray[np.generic]]


def keep(read: Read, _shape: tuple[int, ...], start: int, stop: int) -> NDArray[np.generic]:
    """Change nothing."""
    return read(start, stop)


@dataclass(frozen=True)
class TensorSpec:
    """A tensor the model needs.

    Attributes:
        name: on disk, such as "blk.3.attn_q.weight".
        source: its Hugging Face name; None if it is made by `compute`.
        shape: NumPy order, (rows, columns).
        role: what it is for.
        layer: its layer, None outside the layers.
        prepare: done once, at conversion.
        compute: makes a tensor that no checkpoint has (rope_freqs of llama3 scaling), float32.
    """

    name: str
    source: str | None
    shape: tuple[int, ...]
    role: Role
    layer: int | None = None
    prepare: Transform = keep
    compute: Callable[[], Floats] | None = None
