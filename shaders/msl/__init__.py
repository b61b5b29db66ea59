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
MATRIX = r"simdgroup_matrix<\w+, \d, \d>"
SIMPLE = re.compile(r"[\w.>-]+")
PLAIN = tuple(
    (re.compile(pattern, re.MULTILINE), new)
    for pattern, new in (
        (r"^#include <metal_(?:math|texture)>\n", ""),
        # Products and sums may be one instruction, although mathematics is not fast otherwise.
        (r"^(using namespace metal;)$", r"\1\n#pragma clang fp contract(fast)"),
        (r"\bint\((\d+)\)", r"\1"),
        (rf"\barray<({MATRIX}), (\d+)> (\w+)(?=;| = )", r"\1 \3[\2]"),
        (rf"\barray<array<({MATRIX}), (\d+)>, (\d+)> (\w+);", r"\1 \4[\3][\2];"),
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
    source = _chosen(source)
    parts = []
    for part in _parts(source.splitlines()):
        if part[1:2] == ["{"] and part[-1] == "}":
            body = _parse(iter(part[2:]))
            tidy(body)
            part = [part[0], "{", *_lines(body, 1), "}"]
        parts.append(part)
    return "\n".join(rename(parts)) + "\n"


def _chosen(source: str) -> str:
    """Say `select(no, yes, condition)` in C's way, whose condition may be scalar beside vectors."""
    while (at := source.rfind("select(")) >= 0:
        start, deep, ends = at + len("select("), 1, []
        for i in range(start, len(source)):
            deep += (source[i] in "([") - (source[i] in ")]")
            if deep == 0 or (deep == 1 and source[i] == ","):
                ends.append(i)
            if deep == 0:
                break
        no, yes, condition = (
            part if SIMPLE.fullmatch(part) else f"({part})"
            for a, b in zip((start, ends[0] + 1, ends[1] + 1), ends, strict=True)
            for part in (source[a:b].strip(),)
        )
        source = f"{source[:at]}({condition} ? {yes} : {no}){source[ends[2] + 1 :]}"
    return source


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
