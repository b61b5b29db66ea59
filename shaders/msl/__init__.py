"""Make the MSL that Slang prints fit to be read, without changing what it does.

Slang turns every loop into `for(;;)` with a break, every choice into an `if` that sets a variable,
and numbers all names. Here loops are loops again, choices are choices, and a number is dropped
where the name alone is clear. Loops over few numbers are marked to be unrolled: the Slang source
asks for that, and arrays that they index belong in registers.

It knows how Slang prints: a statement or a brace a line. What it does not recognise it leaves.
"""

import re
from collections.abc import Iterator

from msl.names import rename
from msl.statements import tidy
from msl.tree import Block

BUILTIN = {"_builtinWaveLaneCount_0": "simd_lanes_0", "_builtinWaveLaneIndex_0": "simd_lane_0"}
PLAIN = tuple(
    (re.compile(pattern, re.MULTILINE), new)
    for pattern, new in (
        (r"^#include <metal_(?:math|texture)>\n", ""),
        (r"\bint\((\d+)\)", r"\1"),
        (r"\(&(\w+)\)->", r"\1."),
        (r"\(\*\(&(\w+)\)\)|\*\(&(\w+)\)(?=\))", r"\1\2"),
        (r"float(\d)\(int\1\(0\) *\)", r"float\1(0.0)"),
        (r" +([),;])", r"\1"),
        (r"(?<=\S)  +", " "),
        (r"metal::", ""),
        (r"x24defaultImpl", ""),
        (r"_x24init", "_make"),
        (r"^( +)thread (?=\w)", r"\1"),  # where a variable of a function is anyway
        (r"\((\w+ device\*)\)\(\(ulong\)", r"(\1)("),  # a pointer on its way to another type
        # All function constants are uint, so that a host sets all of them alike.
        (r"^constant bool (fc_\w+) \[\[", r"constant uint \1 [["),
        (r"^(constant bool .*\?) (fc_\w+) :", r"\1 \2 != 0U :"),
        # Metal numbers the threads of a workgroup itself.
        (
            r"uint3 sv_groupthreadid_0 \[\[thread_position_in_threadgroup\]\]",
            "uint sv_groupindex_0 [[thread_index_in_threadgroup]]",
        ),
        (r"^ *uint sv_groupindex_0 = .*\n", ""),
    )
)


def readable(source: str) -> str:
    """Return the same program, easier to read."""
    for field, builtin in re.findall(r"->(_S\d+) = (_builtin\w+);", source):
        source = re.sub(rf"\b{field}\b", BUILTIN[builtin], source)
    for pattern, new in PLAIN:
        source = pattern.sub(new, source)
    parts = []
    for part in _parts(source.splitlines()):
        if part[1:2] == ["{"] and part[-1] == "}":
            body = _parse(iter(part[2:]))
            tidy(body)
            part = [part[0], "{", *_lines(body, 1), "}"]
        parts.append(part)
    return "\n".join(rename(parts)) + "\n"


def _parts(lines: list[str]) -> Iterator[list[str]]:
    """Yield declarations and functions, a list of lines each."""
    part: list[str] = []
    for line in lines:
        if line.strip():
            part.append(line)
        ended = line in ("}", "};") or (len(part) == 1 and line.endswith((";", ">")))
        if ended and not line.startswith("template"):  # whose function follows
            yield part
            part = []


def _parse(lines: Iterator[str]) -> Block:
    block: Block = []
    for line in lines:
        text = line.strip()
        if text == "}":
            break
        block.append(_parse(lines) if text == "{" else text)
    return block


def _lines(block: Block, depth: int) -> Iterator[str]:
    indent = "    " * depth
    for statement in block:
        if isinstance(statement, str):
            yield indent + _bare(statement)
        else:
            yield indent + "{"
            yield from _lines(statement, depth + 1)
            yield indent + "}"


def _bare(statement: str) -> str:
    """Drop parentheses that hold nothing but others, or a whole value or statement."""
    opened: list[int] = []
    pairs: dict[int, int] = {}
    for i, letter in enumerate(statement):
        if letter == "(":
            opened.append(i)
        elif letter == ")":
            pairs[opened.pop()] = i
    drop: set[int] = set()
    for i, end in pairs.items():
        inside = pairs.get(i + 1) == end - 1
        whole = statement[:i].endswith((" = ", "return ")) or i == 0
        if inside or (whole and statement[end + 1 :] == ";"):
            drop |= {i, end}
    return "".join(letter for i, letter in enumerate(statement) if i not in drop)
