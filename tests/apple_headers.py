"""What Apple's own headers say of messages and constants.

metal-cpp (Apache-2.0) is Apple's C++ for Metal; the wheel of `mlx-metal` for macOS carries it. It
is fetched into a temporary folder, read there, and never made part of the project. Each inline
method sends one message, so its C++ prototype is the message's.
"""

import re
import subprocess
import sys
import tempfile
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

WHEEL = "mlx-metal==0.32.4"
PLATFORM = "macosx_14_0_arm64"

_SELECTOR = re.compile(r"_PRIVATE_DEF_SEL\(\s*(\w+),\s*\"([^\"]+)\"\s*\)")
_METHOD = re.compile(
    r"_INLINE [^;{}()]*?(\w+)(?:<[^>]*>)?::~?\w+\(([^{}]*)\)(?: const)?\s*"
    r"\{[^{};]*?sendMessage(?:Safe)?<([^>]+)>\((\w+)[^;]*?_PRIVATE_SEL\((\w+)\)"
)
_ENUM = re.compile(r"_(?:ENUM|OPTIONS)\(([\w:]+), (\w+)\)\s*\{(.*?)\}", re.DOTALL)
_CONSTANT = re.compile(r"(\w+) = (0x[0-9A-Fa-f]+|-?\d+)(?: << (\d+))?\s*,")
_LETTERS = {
    "void": "v", "bool": "b", "double": "d", "CFTimeInterval": "d", "Size": "S",
    "UInteger": "U", "uint64_t": "U", "GPUAddress": "U", "Integer": "q",
}  # fmt: skip


def fetch() -> Path | None:
    """Return the folder of the headers, fetched once; None where that is not possible."""
    folder = Path(tempfile.gettempdir()) / f"edgequant-{WHEEL.replace('==', '-')}"
    if not folder.is_dir():
        command = [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
            *("--only-binary=:all:", "--no-deps", "--platform", PLATFORM, "--dest"),
        ]
        with tempfile.TemporaryDirectory() as made:
            if subprocess.run([*command, made, WHEEL], check=False).returncode:
                return None
            (wheel,) = Path(made).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                wanted = [name for name in archive.namelist() if "/include/metal_cpp/" in name]
                archive.extractall(made, wanted)
            with suppress(OSError):  # another run was faster
                (Path(made) / "mlx" / "include" / "metal_cpp").rename(folder)
    return folder


@dataclass(frozen=True)
class Headers:
    """Apple's headers, in a folder."""

    folder: Path

    @cached_property
    def text(self) -> str:
        """All of them that are of use here."""
        paths = [*self.folder.glob("Foundation/*.hpp"), *self.folder.glob("Metal/MTL[!4]*.hpp")]
        return "\n".join(path.read_text("utf-8") for path in sorted(paths))

    @cached_property
    def constants(self) -> dict[str, int]:
        """Values by name."""
        found = {}
        for _, _, body in _ENUM.findall(self.text):
            for name, value, shift in _CONSTANT.findall(body + ","):
                found[name] = int(value, 0) << int(shift or 0)
        return found

    @cached_property
    def messages(self) -> dict[tuple[str, str], str]:
        """Prototypes, in the letters of `objc`, by class without prefix, and selector."""
        selectors = dict(_SELECTOR.findall(self.text))
        found = {}
        for kind, parameters, result, receiver, accessor in _METHOD.findall(self.text):
            arguments = [part for part in _split(parameters) if not part.endswith(receiver)]
            letters = self._letter(result) + "".join(map(self._letter, arguments))
            found[kind, selectors[accessor]] = letters
        return found

    @cached_property
    def _underlying(self) -> dict[str, str]:
        return {name: kind for kind, name, _ in _ENUM.findall(self.text)}

    def _letter(self, declared: str) -> str:
        """Return the letter of a C++ type, or of a parameter with its name."""
        if re.search(r"\bchar\s*\*", declared):
            return "s"
        if re.search(r"[*^]|\[\]", declared):
            return "p"
        kind = declared.replace("const ", "").split()[0].rpartition("::")[2]
        if kind in self._underlying:
            kind = self._underlying[kind].rpartition("::")[2]
        return _LETTERS.get(kind, f"<{kind}>")


def _split(parameters: str) -> list[str]:
    """Split parameters at commas that are not within a function type."""
    return [part.strip() for part in re.split(r",(?![^()]*\))", parameters) if part.strip()]
