"""Commands as they are typed, run in this process."""

import json
import sys
from typing import Any

import pytest
from click.testing import CliRunner, Result

from edgequant.cli import cli, main


def invoke(*words: object, **options: Any) -> Result:
    """Run a command; its errors come out as they are."""
    return CliRunner().invoke(cli, [*map(str, words)], catch_exceptions=False, **options)


def read_json(*words: object) -> Any:
    """Run a command with --json and return what it prints."""
    result = invoke(*words, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def exits_with(*words: object) -> int:
    """Run the whole program and return its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["edgequant", *map(str, words)])
        with pytest.raises(SystemExit) as caught:
            main()
    assert isinstance(caught.value.code, int)
    return caught.value.code
