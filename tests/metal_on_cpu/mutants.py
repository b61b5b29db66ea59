"""Mechanical changes of a Metal source, each of which should make a kernel wrong.

A mutant is a source with one change: a barrier dropped, a bound of integers shifted by one (a loop
then ends a round early, a guard or a clamp lets one more pass), the operands of what is not
commutative swapped, an amount of a shift raised. The sources are those that
`make shaders` prints: operators of two operands stand between blanks, templates' brackets do not.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

FUNCTION = re.compile(r"^[^/#\s].* \**(\w+)\(")
BARRIER = re.compile(r"\b(?:threadgroup|simdgroup)_barrier\([^;]*\);")
COMPARISON = re.compile(r" (<|<=|>|>=) ")
LOOP = re.compile(r" +(?:for|while)\(")
LAST = re.compile(r" - 1U\b")  # of a count: its last
SWAPPED = re.compile(r" (-|/|%|<<|>>) ")
SHIFT = re.compile(r" (<<|>>) (?:\(?uint[234]\()?(\d+)U")
SELECT = re.compile(r"\bselect\(")
SHIFTED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
FLOAT = re.compile(r"\d\.\d")


@dataclass(frozen=True)
class Mutant:
    """One change of a source.

    Attributes:
        kind: barrier, bound, swap or shift.
        place: the function, and of equal changes in it the how manyth.
        line: where, from 1.
        before: the line as it was, without its indentation.
        after: as it is in the mutant.
        source: all of the mutant.
    """

    kind: str
    place: str
    line: int
    before: str
    after: str
    source: str

    @property
    def name(self) -> str:
        """What it is, in a line; the same in every kernel that has the function."""
        return f"{self.kind} in {self.place}: {self.before} => {self.after or 'nothing'}"


def mutants(source: str) -> Iterator[Mutant]:
    """Yield every mutant of a source, in order of lines."""
    lines = source.split("\n")
    floats = set(re.findall(r"\b(?:float|half)[234]? (?:thread\* )?(\w+)", source))
    function, met = "", Counter[tuple[str, str, str]]()
    for number, line in enumerate(lines):
        if found := FUNCTION.match(line):
            function = found[1]
        if not line.startswith("    "):
            continue  # types, tables and signatures
        for kind, changed in _changes(line, floats):
            whole = "\n".join((*lines[:number], changed, *lines[number + 1 :]))
            before, after = line.strip(), changed.strip()
            met[function, before, after] += 1
            times = met[function, before, after]
            place = f"{function} ({times})" if times > 1 else function
            yield Mutant(kind, place, number + 1, before, after, whole)


def _changes(line: str, floats: set[str]) -> Iterator[tuple[str, str]]:
    for match in BARRIER.finditer(line):
        yield "barrier", line[: match.start()] + line[match.end() :]
    for match in COMPARISON.finditer(line):
        sides = line[_start(line, match.start()) : _end(line, match.end())]
        if FLOAT.search(sides) or floats & set(re.findall(r"\w+", sides)):
            continue  # where a float is exactly at a bound, either side is right
        if LOOP.match(line):
            end = _end(line, match.end())
            yield "bound", f"{line[: match.end()]}({line[match.end() : end]}) - 1U{line[end:]}"
        else:
            yield "bound", f"{line[: match.start()]} {SHIFTED[match[1]]} {line[match.end() :]}"
    for match in LAST.finditer(line):
        yield "bound", line[: match.start()] + line[match.end() :]
    for match in SWAPPED.finditer(line):
        start, end = _start(line, match.start()), _end(line, match.end())
        left, right = line[start : match.start()], line[match.end() : end]
        if left and right and left != right:
            yield "swap", f"{line[:start]}{right} {match[1]} {left}{line[end:]}"
    for match in SELECT.finditer(line):
        inside = line[match.end() : _end(line, match.start()) - 1]
        no, yes, *rest = _arguments(inside)
        changed = ",".join((yes, no, *rest)).strip()
        yield "swap", line[: match.end()] + changed + line[match.end() + len(inside) :]
    for match in SHIFT.finditer(line):
        amount = int(match[2])
        other = amount + 1 if amount < 31 else amount - 1
        yield "shift", f"{line[: match.start(2)]}{other}{line[match.end(2) :]}"


def _start(line: str, at: int) -> int:
    """Return where the operand that ends at a place starts: names, members, calls and indices."""
    while at > 0:
        if line[at - 1] in ")]":
            at = _opening(line, at - 1)
        elif line[at - 1].isalnum() or line[at - 1] in "_.":
            at -= 1
        elif line[:at].endswith("->"):
            at -= 2
        else:
            break
    return at


def _end(line: str, at: int) -> int:
    """Return where the operand that starts at a place ends."""
    while at < len(line) and line[at] in "-*&!~(":  # of one operand
        if line[at] == "(":
            return _tail(line, _closing(line, at) + 1)
        at += 1
    return _tail(line, at)


def _tail(line: str, at: int) -> int:
    while at < len(line):
        if line[at] in "([":
            at = _closing(line, at) + 1
        elif line[at].isalnum() or line[at] in "_." or line[at : at + 2] == "->":
            at += 2 if line[at] == "-" else 1
        else:
            break
    return at


def _closing(line: str, at: int) -> int:
    depth = 0
    for i in range(at, len(line)):
        depth += (line[i] in "([") - (line[i] in ")]")
        if depth == 0:
            return i
    return len(line) - 1


def _opening(line: str, at: int) -> int:
    depth = 0
    for i in range(at, -1, -1):
        depth += (line[i] in ")]") - (line[i] in "([")
        if depth == 0:
            return i
    return 0


def _arguments(inside: str) -> list[str]:
    parts, depth = [""], 0
    for letter in inside:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts
