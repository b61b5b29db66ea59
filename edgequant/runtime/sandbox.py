"""Renders a chat template: a program of its own, run by `template` with little memory and time.

Jinja's sandbox keeps a template away from Python, but not from `'a' * 10**10` or from loops in
loops. So it runs here, where the operating system can stop it. This file imports nothing of ours:
it is run by its path. It reads a request in JSON from standard input and writes the answer to
standard output: {"text": …}, or {"refused": …} if the template itself objects to the messages, or
{"broken": …}.

The environment is that of apply_chat_template in transformers 5.24, so that a template means the
same: trimmed blocks, loop controls, `generation` blocks, `raise_exception`, `strftime_now`, and a
`tojson` that leaves HTML alone.
"""

import json
import sys
from contextlib import suppress
from datetime import datetime

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_MEMORY_BYTES = 1 << 30
MAX_TEXT_CHARACTERS = 1 << 24


class _RefusedError(TemplateError):
    """What `raise_exception` raises."""


class _Generation(Extension):
    """`{% generation %}` marks what the assistant says, for training; here it is its content."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Return the nodes between the tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _refuse(message: str) -> None:
    raise _RefusedError(message)


def _now(layout: str) -> str:
    return datetime.now().astimezone().strftime(layout)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def render(template: str, variables: dict[str, object]) -> dict[str, str]:
    """Return the answer for one request."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _now
    try:
        text = environment.from_string(template).render(variables)
    except _RefusedError as error:
        return {"refused": str(error)}
    except MemoryError:
        return {"broken": "it needs too much memory"}
    except RecursionError:
        return {"broken": "it calls itself without end"}
    except Exception as error:  # a template can raise whatever Python can
        return {"broken": f"{type(error).__name__}: {error}"}
    if len(text) > MAX_TEXT_CHARACTERS:
        return {"broken": f"it writes {len(text):,} characters"}
    return {"text": text}


def main() -> None:
    """Answer one request."""
    with suppress(ImportError, ValueError, OSError):  # not on every system; time is limited anyway
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    request = json.load(sys.stdin)
    json.dump(render(request["template"], request["variables"]), sys.stdout)


if __name__ == "__main__":
    main()
