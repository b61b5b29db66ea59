"""How a model's positions are stretched: read from config.json and from GGUF keys, and computed."""

import math
from dataclasses import dataclass

import numpy as np

from edgequant.blocks import Floats
from edgequant.errors import UnsupportedError
from edgequant.graph.ops.rope import frequencies
from edgequant.model.fields import Fields


@dataclass(frozen=True)
class RopeScaling:
    """How positions are stretched: "linear" (by `factor`) or "llama3" (per frequency).

    `low`, `high` and `original_context` belong to llama3, as in Llama 3.1's config.json.
    """

    kind: str
    factor: float
    low: float = 1.0
    high: float = 4.0
    original_context: int = 8192


def rope_of_config(fields: Fields, context: int) -> tuple[float, RopeScaling | None]:
    """Return theta and the scaling, from transformers 5's or 4's spelling.

    `context` is what llama3 was trained for where its original context is not said.

    Raises:
        CheckpointError: a value of the wrong type or out of range.
        UnsupportedError: another kind of scaling, or a key of it that we do not know.
    """
    new, old = fields.value("rope_parameters"), fields.value("rope_scaling")
    if new and old and new != old:
        fields.refuse("rope_parameters and rope_scaling are both there, and differ.")
    given = new or old or {}
    if not isinstance(given, dict):
        fields.refuse(f"rope_scaling is {given!r}; an object was expected.")
    rope = fields.inside(given, "rope_parameters" if new else "rope_scaling")
    base = rope.number("rope_theta", 1, 1e12, fields.number("rope_theta", 1, 1e12, 10000.0))
    kind = rope.text("rope_type", rope.text("type", "default"))
    rope.number("partial_rotary_factor", 1, 1, 1.0)
    scaling = None
    if kind == "linear":
        scaling = RopeScaling(kind, rope.number("factor", 1, 1e6))
    elif kind == "llama3":
        scaling = RopeScaling(
            kind,
            rope.number("factor", 1, 1e6),
            rope.number("low_freq_factor", 1e-6, 1e6),
            rope.number("high_freq_factor", 1e-6, 1e6),
            rope.integer("original_max_position_embeddings", 1, 1 << 30, context),
        )
        if scaling.low >= scaling.high:
            rope.refuse(
                f"low_freq_factor is {scaling.low:g}, not below high_freq_factor {scaling.high:g}."
            )
    elif kind != "default":
        raise UnsupportedError(
            f"{fields.where}: the rope type {kind!r} is not supported.",
            hint="use a model with plain, linear or llama3 rope.",
        )
    rope.refuse_unknown(())
    return base, scaling


def scaling_of_keys(fields: Fields, name: str) -> RopeScaling | None:
    """Return linear scaling or none; a factor without a type is linear, as llama.cpp reads it.

    Raises:
        GGUFError: a value of the wrong type or out of range.
        UnsupportedError: another kind of scaling.
    """
    kind = fields.text(f"{name}.rope.scaling.type", "linear")
    old = fields.number(f"{name}.rope.scale_linear", 0, 1e6, 0.0)
    factor = fields.number(f"{name}.rope.scaling.factor", 0, 1e6, old)
    if kind not in ("none", "linear"):
        raise UnsupportedError(
            f"{fields.where}: the rope scaling {kind!r} is not supported.",
            hint="use a model with plain, linear or llama3 rope.",
        )
    return RopeScaling("linear", factor) if kind == "linear" and factor not in (0, 1) else None


def llama3_factors(scaling: RopeScaling, base: float, head_dim: int) -> Floats:
    """Return what each frequency is divided by, (head_dim / 2,) float32: rope_freqs.weight.

    Long waves (over original_context / low) are stretched by the whole factor, short ones (under
    original_context / high) not at all, those between by a blend that is linear in the number of
    turns. Source: _compute_llama3_parameters, modeling_rope_utils.py of transformers 5.24, whose
    float32 steps are kept.
    """
    plain = frequencies(base, head_dim)
    factor, context = np.float32(scaling.factor), np.float32(scaling.original_context)
    low, high = np.float32(scaling.low), np.float32(scaling.high)
    wavelength = np.float32(2 * math.pi) / plain
    blend = (context / wavelength - low) / (high - low)
    scaled = (1 - blend) * plain / factor + blend * plain
    scaled = np.where(wavelength > scaling.original_context / scaling.low, plain / factor, scaled)
    scaled = np.where(wavelength < scaling.original_context / scaling.high, plain, scaled)
    factors: Floats = (plain / scaled).astype(np.float32)
    return factors
