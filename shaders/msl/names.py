"""Drop the numbers that Slang gives to all names, where a name alone is clear.

Slang prints `row_3` for the fourth `row` of a file. A name is clear without its number among the
fields of a struct, among what is global, or in a function, if it means one thing there.
"""

import re
from collections.abc import Iterable, Iterator, Set

NUMBERED = re.compile(r"\b([A-Za-z]\w*?)_(\d+)\b")
TEMPORARY = re.compile(r"\b_S\d+\b")
WORD = re.compile(r"\b[A-Za-z_]\w*\b")
INSTEAD = {"this": "self", "sv_groupindex": "thread_index", "entryPointParams": "given"}
# Words of the language that our names could be.
TAKEN = frozenset(
    re.findall(
        r"\w+",
        """
        array auto bool break case char class const constant constexpr continue default device do
        double else enum extern false float for fragment goto half if int kernel long matrix metal
        namespace new operator packed private public register return sampler short signed sizeof
        static struct switch template texture thread threadgroup true typename uchar uint ulong
        union unsigned ushort using vec vertex void volatile while
        """,
    )
)

Names = dict[str, str]


def rename(parts: list[list[str]]) -> list[str]:
    """Return the lines of all declarations and functions, with an empty one after each long one."""
    functions = [part for part in parts if part[1:2] == ["{"] and not part[0].startswith("struct")]
    structs = [part for part in parts if part[0].startswith("struct")]
    fields: Names = {}
    for struct in structs:
        declared = [re.sub(r".* (\w+;)$", r"\1", line) for line in struct[1:]]
        fields |= _shorten(_numbered(declared), TAKEN)
    rest = [line for part in parts if part not in structs + functions for line in part]
    heads = [part[0].split("(")[0] for part in structs + functions]
    shared = _shorten(_numbered([*heads, *rest]), TAKEN)
    lines: list[str] = []
    for part in parts:
        names = shared | fields
        if part in functions:
            text = "\n".join(part)
            inner = [found for found in _numbered(part) if "_".join(found) not in names]
            words = {word for word in WORD.findall(text) if not NUMBERED.fullmatch(word)}
            names |= _shorten(inner, TAKEN | set(shared.values()) | words)
            for i, name in enumerate(dict.fromkeys(TEMPORARY.findall(text)), start=1):
                names[name] = f"t{i}"
        lines += [_replace(line, names) for line in part]
        if len(part) > 1:
            lines.append("")
    return lines


def _replace(line: str, names: Names) -> str:
    return WORD.sub(lambda word: names.get(word[0], word[0]), line)


def _numbered(lines: Iterable[str]) -> list[tuple[str, str]]:
    """Return (name, number) of all numbered names, in order."""
    return list(dict.fromkeys(found for line in lines for found in NUMBERED.findall(line)))


def _shorten(numbered: list[tuple[str, str]], taken: Set[str]) -> Names:
    """Give the first of each name no number, and the others low ones."""
    names: Names = {}
    used = set(taken)
    for stem, number in numbered:
        plain = INSTEAD.get(stem, stem)
        new = next(n for n in _candidates(plain) if n not in used)
        used.add(new)
        names[f"{stem}_{number}"] = new
    return names


def _candidates(stem: str) -> Iterator[str]:
    yield stem
    i = 1
    while True:
        yield f"{stem}_{i}"
        i += 1
