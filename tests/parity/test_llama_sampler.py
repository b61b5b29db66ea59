"""Our candidates and their probabilities are those of llama.cpp's chain of samplers."""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from edgequant.device.protocol import Sampling
from edgequant.runtime.sampler import candidates

pytestmark = pytest.mark.oracle
VOCAB = 3000


@pytest.fixture(scope="module")
def library() -> Any:
    return pytest.importorskip("llama_cpp")


def chain_candidates(
    library: Any, logits: np.ndarray, sampling: Sampling, recent: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Ids, best first, and probabilities that llama.cpp's default order leaves to the draw."""
    chain = library.llama_sampler_chain_init(library.llama_sampler_chain_default_params())
    penalties = library.llama_sampler_init_penalties(
        len(logits), sampling.repeat_last, sampling.repeat_penalty, 0.0, 0.0
    )
    for part in (
        penalties,
        library.llama_sampler_init_top_k(sampling.top_k),
        library.llama_sampler_init_top_p(sampling.top_p, 0),
        library.llama_sampler_init_min_p(sampling.min_p, 0),
        library.llama_sampler_init_temp_ext(sampling.temperature, 0.0, 1.0),
    ):
        library.llama_sampler_chain_add(chain, part)
    for token in recent:
        library.llama_sampler_accept(chain, token)
    items = (library.llama_token_data * len(logits))(
        *((i, float(logit), 0.0) for i, logit in enumerate(logits))
    )
    array = library.llama_token_data_array(
        ctypes.cast(items, library.llama_token_data_p), len(logits), -1, False
    )
    library.llama_sampler_apply(chain, ctypes.byref(array))
    left = [(array.data[i].id, array.data[i].logit) for i in range(array.size)]
    library.llama_sampler_free(chain)
    left = [pair for pair in left if pair[1] > -np.inf]
    left.sort(key=lambda pair: (-pair[1], pair[0]))
    powers = np.exp(np.array([logit for _, logit in left]) - left[0][1])
    return np.array([i for i, _ in left]), powers / powers.sum()


SETTINGS = (
    Sampling(),
    Sampling(temperature=0),
    Sampling(temperature=0, repeat_penalty=1.3),
    Sampling(1.0, 0, 1.0, 0.0),
    Sampling(0.5, 7, 1.0, 0.0),
    Sampling(1.5, 0, 0.9, 0.0),
    Sampling(1.0, 0, 1.0, 0.2),
    Sampling(0.7, 100, 0.8, 0.1, 1.1),
    Sampling(1.0, 1, 0.5, 0.5),
    Sampling(1.0, 50, 0.0, 0.0),
    Sampling(1.0, 0, 1.0, 0.0, 2.0, repeat_last=3),
    Sampling(1.0, 0, 1.0, 0.0, 2.0, repeat_last=0),
)


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
@pytest.mark.parametrize("spread", [0.5, 3.0])
def test_candidates(
    library: Any, rng: np.random.Generator, sampling: Sampling, spread: float
) -> None:
    for _ in range(3):
        logits = (spread * rng.standard_normal(VOCAB)).astype(np.float32)
        best = np.argsort(-logits)[:5]
        recent = [int(i) for i in (*best[:2], *best[:2], *rng.integers(0, VOCAB, 70), *best[2:])]
        ids, chances = candidates(logits, sampling, recent)
        expected_ids, expected = chain_candidates(library, logits, sampling, recent)
        assert ids.tolist() == expected_ids.tolist()
        assert chances == pytest.approx(expected, rel=1e-4)
