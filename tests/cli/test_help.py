"""`--help` of every command, and that the README speaks of the commands and options that are."""

import re
from pathlib import Path

import click
import pytest
import typed

from edgequant.cli import COMMANDS, cli

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"```\n(.*?)```", README, re.DOTALL)
EXAMPLES = [line for block in BLOCKS for line in block.splitlines() if line[:10] == "edgequant "]
TABLE = re.findall(r"^\| `(\w+) (.*)` \| (.*) \|$", README, re.MULTILINE)


def load(command: str) -> click.Command:
    loaded = cli.get_command(click.Context(cli), command)
    assert loaded is not None
    return loaded


def options_of(command: str) -> set[str]:
    return {name for parameter in load(command).params for name in parameter.opts} | {"--help"}


def test_the_list_of_commands() -> None:
    result = typed.invoke("--help")
    assert result.exit_code == 0
    for name, summary in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(summary)}$", result.stdout, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_commands_help(command: str) -> None:
    result = typed.invoke(command, "-h")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: edgequant {command} ")
    assert load(command).name == command
    assert {"--json", "--quiet", "--debug"} <= options_of(command)
    for parameter in load(command).params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name
            assert parameter.help.endswith("."), parameter.help
            numeric = isinstance(parameter.type, (click.IntRange, click.FloatRange))
            assert not numeric or parameter.metavar, parameter.name


@pytest.mark.parametrize("command", COMMANDS)
def test_an_option_means_the_same_everywhere(command: str) -> None:
    for name in ("--device", "--force", "--json", "--quiet", "--debug", "--file", "--chunks"):
        if name in options_of(command):
            (found,) = (p for p in load(command).params if name in p.opts)
            for other in COMMANDS:
                twins = [p for p in load(other).params if name in p.opts]
                assert all(p.opts == found.opts and p.metavar == found.metavar for p in twins)


def test_the_readme_has_every_command_and_no_other() -> None:
    assert [name for name, _, _ in TABLE] == list(COMMANDS)


@pytest.mark.parametrize(("command", "arguments", "text"), TABLE)
def test_the_readmes_options_are_there(command: str, arguments: str, text: str) -> None:
    ticked = " ".join(re.findall(r"`(-[^`]*)`", text))
    words = re.findall(r"(?<!\S)--?[a-z][\w-]*", f"{arguments} {ticked}")
    assert set(words) <= options_of(command)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_readmes_examples_are_accepted(example: str) -> None:
    _, command, *words = re.findall(r'"[^"]*"|\S+', example)
    load(command).make_context(command, words)


def test_the_readme_has_examples() -> None:
    assert len(EXAMPLES) >= 4
