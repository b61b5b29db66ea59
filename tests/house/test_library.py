"""What `import edgequant` offers: the functions behind the commands."""

import inspect
from importlib.resources import files

import pytest

import edgequant
from edgequant.cli import COMMANDS


@pytest.mark.parametrize("name", edgequant._VERBS)
def test_a_command_is_a_function(name: str) -> None:
    assert name in COMMANDS
    function = getattr(edgequant, name)
    assert function.__module__.startswith("edgequant.stages.")
    assert "progress" in inspect.signature(function).parameters or name == "inspect"


def test_nothing_else_is_made_up() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'chat'"):
        edgequant.chat  # noqa: B018


def test_type_checkers_are_told_of_its_types() -> None:
    assert files("edgequant").joinpath("py.typed").is_file()
