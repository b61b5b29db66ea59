"""Rope frequencies are transformers', to the last bit but where theirs is rounded the worse.

Llama 3.1's factors were once ignored by converters, which shows only beyond 8,192 positions.
"""

import numpy as np
import pytest
from numpy.typing import NDArray

from edgequant.graph.ops.rope import frequencies
from edgequant.model.hparams import HParams
from edgequant.model.rope_scaling import llama3_factors

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.oracle

SIZES = {
    "hidden_size": 4096, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 32,
    "vocab_size": 64, "rms_norm_eps": 1e-5, "max_position_embeddings": 131072,
}  # fmt: skip


def theirs(config: dict[str, object]) -> NDArray[np.float32]:
    """What a transformers Llama of this config multiplies positions with."""
    module = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding
    found: NDArray[np.float32] = module(transformers.LlamaConfig(**config)).inv_freq.numpy()
    return found


def bits_apart(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.int32]:
    return np.abs(a.view(np.int32) - b.view(np.int32))


@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 256])
@pytest.mark.parametrize("base", [1e4, 1e5, 5e5, 1e6, 1e7])
@pytest.mark.parametrize("stretch", [1.0, 4.0])
def test_plain_and_linear(head_dim: int, base: float, stretch: float) -> None:
    scaling = {"type": "linear", "factor": stretch} if stretch > 1 else None
    wanted = theirs(SIZES | {"head_dim": head_dim, "rope_theta": base, "rope_scaling": scaling})
    apart = bits_apart(frequencies(base, head_dim, stretch), wanted)
    assert apart.max() <= 1
    assert np.count_nonzero(apart) <= 1


@pytest.mark.parametrize("spelling", ["rope_type", "type"])
@pytest.mark.parametrize(("factor", "head_dim"), [(8.0, 128), (32.0, 64), (32.0, 128)])
def test_llama3(spelling: str, factor: float, head_dim: int) -> None:
    scaling = {
        spelling: "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }  # fmt: skip
    config = SIZES | {"head_dim": head_dim, "rope_theta": 5e5, "rope_scaling": scaling}
    h = HParams.from_config(config, "config.json")
    assert h.rope_scaling is not None
    factors = llama3_factors(h.rope_scaling, h.rope_base, h.head_dim)
    apart = bits_apart(frequencies(h.rope_base, h.head_dim) / factors, theirs(config))
    assert apart.max() <= 1
    assert not apart[factors == factor].any()
    assert not apart[factors == 1].any()
