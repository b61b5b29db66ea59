"""The bundle's player stands for an app: it may know the bundle, and nothing of this package."""

import ast
import sys
from pathlib import Path

import pytest

PLAYER = Path(__file__).parents[1] / "bundle_player"
FILES = sorted(PLAYER.glob("*.py"))
OWN = {path.stem for path in FILES}


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            assert node.module is not None
            names.add(node.module.partition(".")[0])
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_it_imports_the_standard_library_and_no_other(path: Path) -> None:
    assert imported(path) <= set(sys.stdlib_module_names) | OWN
    assert not {"importlib", "runpy", "subprocess"} & imported(path)
    assert "__import__" not in path.read_text("utf-8")
    assert len(path.read_text("utf-8").splitlines()) <= 300


def test_it_is_found() -> None:
    assert {"__main__", "bpe", "gpu", "player"} <= OWN
    assert not OWN - {"__main__"} & set(sys.stdlib_module_names)
    assert "ctypes" in imported(PLAYER / "gpu.py")
