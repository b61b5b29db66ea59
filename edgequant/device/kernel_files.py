"""What a compiled kernel's file says of itself: its entry point, its threads, what it needs.

It reads SPIR-V modules and the first line of Metal sources, and knows nothing of what kernels
compute. The numbers are those of the SPIR-V specification, version 1.6.
"""

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import takewhile
from pathlib import Path

from edgequant.errors import DeviceError

Axis = tuple[str, int]  # "fixed" and threads, or "constant" and the constant's number

_MATRICES = 6022
# Capabilities that a device may lack, by number, as the features Vulkan 1.3 has for them.
_FEATURES = {
    9: "shaderFloat16",
    11: "shaderInt64",
    22: "shaderInt16",
    39: "shaderInt8",
    5345: "vulkanMemoryModel",
    5346: "vulkanMemoryModelDeviceScope",
    5347: "bufferDeviceAddress",
    6018: "shaderIntegerDotProduct",  # DotProductInput4x8BitPacked
    6019: "shaderIntegerDotProduct",  # DotProduct
    _MATRICES: "cooperativeMatrix",
}
_SUBGROUP = {61: "basic", 63: "arithmetic", 65: "shuffle"}  # operations, not features
_ALWAYS = {1}  # Shader
_SPEC_ID = 1  # the decoration that gives a constant its number
_METAL = re.compile(r"// entry (\w+), threads (?:constant (\d+)|(\d+) (\d+) (\d+))")


class _Op(IntEnum):
    """Instructions, by their codes."""

    ENTRY_POINT = 15
    EXECUTION_MODE = 16
    CAPABILITY = 17
    CONSTANT = 43
    SPEC_CONSTANT = 50
    FUNCTION = 54
    DECORATE = 71
    EXECUTION_MODE_ID = 331


# By the instruction that says how many threads there are: the mode that means it.
_MODES: dict[int, int] = {_Op.EXECUTION_MODE: 17, _Op.EXECUTION_MODE_ID: 38}


@dataclass(frozen=True)
class KernelFile:
    """A compiled kernel.

    Attributes:
        path: of its file.
        entry: its entry point.
        axes: threads of a workgroup: fixed, or a specialization constant.
        features: of Vulkan, that it needs.
        subgroup_operations: kinds of them that it needs, in Vulkan's words.
    """

    path: Path
    entry: str
    axes: tuple[Axis, Axis, Axis]
    features: frozenset[str] = frozenset()
    subgroup_operations: frozenset[str] = frozenset()

    @property
    def minds_subgroups(self) -> bool:
        """Whether it must run in subgroups of the size it was specialized for, all full."""
        return bool(self.subgroup_operations) or "cooperativeMatrix" in self.features

    def threads(self, constants: Sequence[int]) -> tuple[int, int, int]:
        """Return the threads of a workgroup when the kernel is specialized so."""
        x, y, z = (constants[n] if kind == "constant" else n for kind, n in self.axes)
        return x, y, z


@dataclass(frozen=True)
class Language:
    """A form in which kernels are shipped: the folder under generated/, and how to read one."""

    folder: str
    suffix: str
    read: Callable[[Path], KernelFile]

    def find(self, shaders: Path, kernel: str) -> KernelFile:
        """Read the file of a kernel.

        Args:
            shaders: the folder that ships with the package.
            kernel: stem of the file.

        Raises:
            DeviceError: there is none.
        """
        path = shaders / "generated" / self.folder / f"{kernel}{self.suffix}"
        if not path.is_file():
            raise DeviceError(
                f"{kernel}: there is no {path.name} among the kernels for {self.folder}.",
                hint="install edgequant again; in a checkout, run `make shaders`.",
            )
        return self.read(path)


def read_spirv(path: Path) -> KernelFile:
    """Read a SPIR-V module."""
    entry, sizes, by_id = "", (1, 1, 1), False
    numbers: dict[int, int] = {}  # of specialization constants, by id
    values: dict[int, Axis] = {}  # of constants, by id
    capabilities: set[int] = set()
    for code, words in _instructions(path.read_bytes()):
        if code == _Op.CAPABILITY:
            capabilities.add(words[0])
        elif code == _Op.ENTRY_POINT:
            entry = _text(words[2:])
        elif code in _MODES and words[1] == _MODES[code]:
            sizes, by_id = (words[2], words[3], words[4]), code == _Op.EXECUTION_MODE_ID
        elif code == _Op.DECORATE and words[1] == _SPEC_ID:
            numbers[words[0]] = words[2]
        elif code == _Op.CONSTANT:
            values[words[1]] = ("fixed", words[2])
        elif code == _Op.SPEC_CONSTANT:
            values[words[1]] = ("constant", numbers[words[1]])
    x, y, z = (values[size] if by_id else ("fixed", size) for size in sizes)
    known = capabilities - _ALWAYS - _SUBGROUP.keys()
    return KernelFile(
        path,
        entry,
        (x, y, z),
        frozenset(_FEATURES[number] for number in known),
        frozenset(_SUBGROUP[number] for number in capabilities & _SUBGROUP.keys()),
    )


def minds_subgroups(module: bytes) -> bool:
    """Tell whether a SPIR-V module must run in subgroups of one size, all full.

    Its first instructions say so: capabilities come before all else.
    """
    said = takewhile(lambda instruction: instruction[0] == _Op.CAPABILITY, _instructions(module))
    return any(words[0] in _SUBGROUP or words[0] == _MATRICES for _, words in said)


def read_metal(path: Path) -> KernelFile:
    """Read a Metal source, whose first line says what is asked here."""
    with path.open(encoding="utf-8") as file:
        found = _METAL.match(file.readline())
    assert found is not None, f"{path}: every source of ours says its entry first"
    if found[2] is not None:
        return KernelFile(path, found[1], (("constant", int(found[2])), ("fixed", 1), ("fixed", 1)))
    x, y, z = (("fixed", int(number)) for number in found.groups()[2:])
    return KernelFile(path, found[1], (x, y, z))


SPIRV = Language("spirv", ".spv", read_spirv)
METAL = Language("metal", ".metal", read_metal)


def _instructions(module: bytes) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the code and words of each instruction before the first function."""
    words = struct.unpack(f"<{len(module) // 4}I", module)
    at = 5
    while at < len(words) and words[at] & 0xFFFF != _Op.FUNCTION:
        count, code = words[at] >> 16, words[at] & 0xFFFF
        yield code, words[at + 1 : at + count]
        at += count


def _text(words: Sequence[int]) -> str:
    return struct.pack(f"<{len(words)}I", *words).partition(b"\0")[0].decode()
