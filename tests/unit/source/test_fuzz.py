"""A short run of tests/bench/fuzz_safetensors.py."""

from pathlib import Path

import pytest
from bench.fuzz_safetensors import MOST_BYTES, MOST_SECONDS, fuzz


@pytest.mark.parametrize("seed", range(2))
def test_mutated_headers_give_only_our_errors(tmp_path: Path, seed: int) -> None:
    figures = fuzz(200, seed, tmp_path)
    assert figures.outcomes["refused"] > 50
    assert figures.outcomes["read"] > 0
    assert figures.peak < MOST_BYTES
    assert figures.slowest < MOST_SECONDS
