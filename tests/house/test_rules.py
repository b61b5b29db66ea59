"""The rules of the house that a program can see."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from every_error import error_calls

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "edgequant"
MODULES = sorted(PACKAGE.rglob("*.py"))
BAD_ROOMS = {"utils", "util", "helpers", "helper", "common", "misc", "base", "core"}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_is_one_idea(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 300
    assert path.stem not in BAD_ROOMS
    assert path.parent.name not in BAD_ROOMS


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_error_of_ours_has_a_hint(path: Path) -> None:
    for call in error_calls(path):
        assert "hint" in {keyword.arg for keyword in call.keywords}, f"{path.name}:{call.lineno}"


def test_errors_are_found() -> None:
    assert sum(len(list(error_calls(path))) for path in MODULES) > 150


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_only_the_cli_prints(path: Path) -> None:
    if "cli" in path.parts:
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "print", f"{path.name}:{node.lineno}"


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("edgequant.cli", "numpy rich gguf torch llama_cpp tokenizers huggingface_hub jinja2"),
        ("edgequant.cli.run", "rich gguf torch llama_cpp huggingface_hub jinja2"),
        ("edgequant.device.vulkan.hardware", "numpy click"),  # its driver starts while these load
    ],
)
def test_import_is_light(module: str, heavy: str) -> None:
    code = f"import sys, {module}; sys.exit(', '.join(set({heavy.split()}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""
