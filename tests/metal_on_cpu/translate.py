"""MSL becomes C++ for `include/metal_stdlib`, with a function that runs a thread of each kernel.

Only what C++ cannot say is rewritten; lines stay where they are, so that the compiler's messages
are about the MSL.
"""

import re
from dataclasses import dataclass

SCALARS = "float|half|int|uint|short|ushort|char|uchar|long|ulong"
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
CONSTRUCTOR = re.compile(rf"\b(?:packed_)?((?:{SCALARS})[234])\s*\(")
FUNCTION_CONSTANT = re.compile(
    r"\bconstant\s+(\w+)\s+(\w+)\s*\[\[\s*function_constant\s*\(\s*(\d+)\s*\)\s*\]\]\s*;"
)
DERIVED_CONSTANT = re.compile(r"^constant\s+(\w+)\s+(\w+)\s*=\s*([^;]*);", re.MULTILINE)
# A variable; a pointer or reference to threadgroup memory has a * or & after the type.
SHARED = re.compile(
    r"\bthreadgroup\s+((?:[\w:]+\s*<[^;{}()*&]*(?:\([^;{}()*&]*\)[^;{}()*&]*)*>|[\w:]+))\s+"
    r"(\w+)\s*((?:\[[^;\]]*\]\s*)*);"
)
STRUCT = re.compile(r"\bstruct\s+(\w+)\s*\{([^{}]*)\}\s*;")
DOUBLE = re.compile(r"(?<![\w.])(\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)(?![\w.])")
KERNEL = re.compile(r"(?:\[\[\s*kernel\s*\]\]|\bkernel\b)\s+void\s+(\w+)\s*\(")
ATTRIBUTE = re.compile(r"\[\[(.*?)\]\]", re.DOTALL)
PARAMETER = re.compile(r"(.*?)(\w+)\s*\[\[\s*(\w+)\s*(?:\(\s*(\d+)\s*\))?\s*\]\]\s*$", re.DOTALL)

# By attribute: a component of it, and how many it has.
PLACES = {
    "thread_position_in_threadgroup": ("p.local[{0}]", 3),
    "threadgroup_position_in_grid": ("p.group[{0}]", 3),
    "thread_position_in_grid": ("p.group[{0}] * p.threads[{0}] + p.local[{0}]", 3),
    "threads_per_threadgroup": ("p.threads[{0}]", 3),
    "threadgroups_per_grid": ("p.groups[{0}]", 3),
    "threads_per_grid": ("p.groups[{0}] * p.threads[{0}]", 3),
    "thread_index_in_threadgroup": ("p.index", 1),
    "thread_index_in_simdgroup": ("p.lane", 1),
    "simdgroup_index_in_threadgroup": ("p.index / p.width", 1),
    "threads_per_simdgroup": ("p.width", 1),
    "simdgroups_per_threadgroup": (
        "(p.threads[0] * p.threads[1] * p.threads[2] + p.width - 1) / p.width",
        1,
    ),
}


@dataclass(frozen=True)
class Translated:
    """C++, and what a host must know of it.

    Attributes:
        text: the source.
        kernels: entry points.
        constants: numbers of its function constants.
    """

    text: str
    kernels: tuple[str, ...]
    constants: tuple[int, ...]


def translate(source: str) -> Translated:
    """Return the C++ of a Metal source.

    Raises:
        ValueError: a kernel's parameter is not understood.
    """
    text = COMMENT.sub(lambda match: re.sub(r"[^\n]", "", match[0]), source)
    text = DOUBLE.sub(r"\1f", text)  # MSL has no doubles
    text = STRUCT.sub(_struct, text)
    text = SHARED.sub(_shared, text)
    assignments: list[str] = []
    numbers: list[int] = []

    def constant(match: re.Match[str]) -> str:
        kind, name, number = match[1], match[2], int(match[3])
        numbers.append(number)
        assignments.append(f"if ((given_{name} = given >> {number} & 1)) ")
        assignments.append(f"{name} = ({kind})values[{number}];\n")
        return f"static {kind} {name}; static bool given_{name};"

    text = FUNCTION_CONSTANT.sub(constant, text)
    text = re.sub(r"\bis_function_constant_defined\s*\(\s*(\w+)\s*\)", r"given_\1", text)
    if numbers:  # what is computed of them must be computed anew when they are set
        text = DERIVED_CONSTANT.sub(lambda m: _derived(m, assignments), text)

    entries, parameters = [], []
    for match in KERNEL.finditer(text):
        entries.append(match[1])
        end = _closing(text, match.end() - 1)
        parameters.append([p for p in _split(text[match.end() : end]) if p.strip()])
    text = ATTRIBUTE.sub(lambda m: m[0] if m[1].startswith("gnu::") else "", text)
    text = CONSTRUCTOR.sub(r"make_\1(", text)
    tail = "".join(_runner(name, given) for name, given in zip(entries, parameters, strict=True))
    tail += (
        '\nextern "C" [[clang::no_sanitize("coverage")]]\n'
        "void shim_constants(unsigned given, const unsigned *values)\n"
        f"{{\n(void)given; (void)values;\n{''.join(assignments)}}}\n{IMAGE}"
    )
    return Translated(f"{text}\n{tail}", tuple(entries), tuple(sorted(numbers)))


# The section exists even where no kernel has threadgroup memory.
IMAGE = """
[[gnu::section("threadgroup"), gnu::used]] alignas(16) static char shim_no_threadgroup_memory[16];
extern "C" {
#define HIDDEN extern __attribute__((visibility("hidden"))) char
HIDDEN __start_threadgroup[], __stop_threadgroup[], __ehdr_start[], _end[];
char *shim_image[4] = {__start_threadgroup, __stop_threadgroup, __ehdr_start, _end};
}
"""


def _struct(match: re.Match[str]) -> str:
    name, body = match.groups()
    members = [m.split()[-1].lstrip("*&") for m in body.split(";") if m.strip()]
    if not all(re.fullmatch(r"\w+", member) for member in members):
        return match[0]
    given = ", ".join(f"decltype({m}) given_{m}" for m in members)
    taken = ", ".join(f"{m}(given_{m})" for m in members)
    return f"struct {name} {{{body} SHIM_STRUCT({name}, {name}({given}) : {taken} {{}}) }};"


def _shared(match: re.Match[str]) -> str:
    """Threadgroup variables lie in a section of their own: there is one threadgroup at a time."""
    kind, name, dimensions = match[1], match[2], match[3].strip()
    return (
        f"typedef {kind} {name}_type {dimensions}; "
        '[[gnu::section("threadgroup")]] alignas(16) '
        f"static char {name}_bytes[sizeof({name}_type)]; "
        f"threadgroup {name}_type &{name} = *(threadgroup {name}_type *)(ulong){name}_bytes;"
    )


def _derived(match: re.Match[str], assignments: list[str]) -> str:
    kind, name, value = match.groups()
    if "{" in value:
        return match[0]
    assignments.append(f"{name} = {value};\n")
    return f"static {kind} {name};"


def _runner(name: str, parameters: list[str]) -> str:
    """Return a function that runs one thread of a kernel."""
    given = []
    for parameter in parameters:
        match = PARAMETER.match(parameter)
        if not match:
            raise ValueError(f"{name}: a parameter without an attribute, {parameter.strip()!r}.")
        kind, attribute, number = match[1].strip(), match[3], match[4]
        if attribute == "buffer" and number == "0":
            kind = kind.removesuffix("&").strip() + " *" if kind.endswith("&") else kind
            given.append(f"{'*' if match[1].strip().endswith('&') else ''}({kind})(ulong)arguments")
        elif attribute in PLACES:
            place, most = PLACES[attribute]
            width = int(kind[-1]) if kind[-1].isdigit() else 1
            parts = ", ".join(place.format(axis) for axis in range(min(width, most)))
            given.append(f"make_{kind}({parts})" if width > 1 else f"({kind})({parts})")
        else:
            raise ValueError(f"{name}: parameter {match[2]} is [[{attribute}]].")
    return (
        f'\nextern "C" void shim_{name}(const void *arguments, const ShimPlace *place)\n'
        "{\nconst ShimPlace &p = *place;\n(void)arguments; (void)p;\n"
        f"{name}({', '.join(given)});\n}}\n"
    )


def _closing(text: str, at: int) -> int:
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0:
            return i
    raise ValueError("a parenthesis is not closed.")


def _split(text: str) -> list[str]:
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{<") - (letter in ")]}>")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts
