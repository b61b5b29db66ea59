"""A function as a tree, and what can be told of it.

It is a list of statements, each a string, or a list for what stands in braces. Names are unique in
it, as Slang numbers them.
"""

import re
from collections.abc import Callable, Iterator

Block = list["str | Block"]

CHANGED = re.compile(r"\b(\w+)(?:(?:[.\[]|->)[^=\n]*?)? [-+*]?= |\b(\w+)\+\+|&(\w+)")
PURE = {"min", "max", "uint", "float", "int"}  # functions of their arguments


def each(block: Block, rewrite: Callable[[Block], None]) -> None:
    """Rewrite the blocks of a tree, inner ones first."""
    for statement in block:
        if not isinstance(statement, str):
            each(statement, rewrite)
    rewrite(block)


def text(block: Block, i: int) -> str:
    """Return a statement; "" where there is none, or braces."""
    statement = block[i] if 0 <= i < len(block) else ""
    return statement if isinstance(statement, str) else ""


def flat(block: Block) -> Iterator[str]:
    """Yield all statements."""
    for statement in block:
        if isinstance(statement, str):
            yield statement
        else:
            yield from flat(statement)


def mentions(where: "str | Block", name: str) -> int:
    """Count the uses of a variable; a field of that name is none."""
    text = where if isinstance(where, str) else "\n".join(flat(where))
    return len(re.findall(rf"(?<![\w.>]){name}\b", text)) if name in text else 0


def is_steady(value: str, statements: Block) -> bool:
    """Tell whether a value is the same before and after some statements."""
    changed = {n for found in CHANGED.findall("\n".join(flat(statements))) for n in found}
    calls = set(re.findall(r"(\w+)\(", value)) - PURE
    loads = re.search(r"\*\(|\(\*|\[|^\*", value)
    return not calls and not loads and not changed & set(re.findall(r"\w+", value))


def is_loop(block: Block, i: int) -> bool:
    """Tell whether the statement begins a loop that has its condition."""
    return text(block, i).startswith(("for(", "while("))


def leaves(block: Block) -> bool:
    """Tell whether a block breaks out of the loop around it, or goes on with it."""
    return any(
        statement in ("break;", "continue;")
        or (not isinstance(statement, str) and not is_loop(block, i - 1) and leaves(statement))
        for i, statement in enumerate(block)
    )
