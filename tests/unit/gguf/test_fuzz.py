from pathlib import Path
from types import ModuleType


def test_damage_gives_our_errors_and_costs_little(fuzz: ModuleType, tmp_path: Path) -> None:
    figures = fuzz.fuzz(2000, 20261129, tmp_path)
    assert figures.peak < 64 << 20
    assert figures.slowest < 2
    assert figures.outcomes["GGUFError"] > 500
    assert figures.outcomes["still sound"] > 50
