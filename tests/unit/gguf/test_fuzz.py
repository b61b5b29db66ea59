"""A short run of tests/bench/fuzz_gguf.py."""

from pathlib import Path

import pytest
from bench.fuzz_gguf import fuzz


@pytest.mark.slow
def test_damage_gives_our_errors_and_costs_little(tmp_path: Path) -> None:
    figures = fuzz(1000, 20261129, tmp_path)
    assert figures.peak < 64 << 20
    assert figures.slowest < 2
    assert figures.outcomes["GGUFError"] > 250
    assert figures.outcomes["still sound"] > 25
