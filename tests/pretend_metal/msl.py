"""What is read from a kernel's text: its name, its function constants, its addresses.

Slang prints one struct at `[[buffer(0)]]`, pointers first.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pretend_metal.refused import Refused

_KERNEL = re.compile(r"(?:\[\[\s*kernel\s*\]\]|\bkernel\b)\s*void\s+(\w+)\s*\(")
_ARGUMENTS = re.compile(r"(\w+)\s+constant\s*\*\s*\w+\s*\[\[\s*buffer\(0\)")
_STRUCT = re.compile(r"struct\s+(\w+)\s*\{(.*?)\};", re.DOTALL)
_CONSTANT = re.compile(r"constant\s+(\w+)\s+(\w+)\s*\[\[\s*function_constant\((\d+)\)\s*\]\]")

_SCALARS = {"uint", "int", "float"}


def without_comments(source: str) -> str:
    """Return MSL without comments and line directives."""
    return re.sub(r"//[^\n]*|/\*.*?\*/|^#line[^\n]*", "", source, flags=re.DOTALL | re.MULTILINE)


def entries(source: str) -> list[str]:
    """Return the names of the kernels of a text."""
    return _KERNEL.findall(source)


def constants(source: str) -> dict[int, tuple[str, bool]]:
    """Return the type of each function constant, by number, and whether it may have no value."""
    return {
        int(number): (kind, f"is_function_constant_defined({name})" in source)
        for kind, name, number in _CONSTANT.findall(source)
    }


@dataclass(frozen=True)
class Arguments:
    """The struct at `[[buffer(0)]]`: how many addresses it begins with, and its bytes, padded."""

    addresses: int
    nbytes: int


def arguments(source: str) -> Arguments:
    """Return what a kernel is given."""
    found = _ARGUMENTS.search(source)
    if found is None:
        raise Refused("there is no struct at [[buffer(0)]]")
    fields = list(_fields(dict(_STRUCT.findall(source)), found[1]))
    addresses = sum("*" in field for field in fields)
    for field in fields[addresses:]:
        if "*" in field or field.split()[0] not in _SCALARS:
            raise Refused(f"{field.strip()} follows the addresses at [[buffer(0)]]")
    nbytes = 8 * addresses + 4 * (len(fields) - addresses)
    return Arguments(addresses, -(-nbytes // 8) * 8 if addresses else nbytes)


def _fields(structs: dict[str, str], name: str) -> Iterator[str]:
    for declared in structs.get(name, "").split(";"):
        kind = declared.split()[0] if declared.split() else ""
        if kind in structs and "*" not in declared:
            yield from _fields(structs, kind)
        elif kind:
            yield declared
