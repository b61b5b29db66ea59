"""Compile every kernel to SPIR-V, and print what Python and the shaders must agree on.

    python shaders/build.py           remake what changed in generated/, and lib/'s printed files
    python shaders/build.py --check   remake all elsewhere, and fail if what is checked in differs

A source says which kernels are made of it, one a line:

    // kernel gate
    // kernel matmul_16 -DT=16 -DLANES=32
    // kernel matvec_{format}            one for each file of formats/
    // kernel matvec_i8_{dot_format}     one for each format that implements IDotFormat

The entry point has the name of its file. A kernel of a format is compiled with FORMAT, the name of
its type, and FORMAT_FILE, to be included. The compiler is the library inside the slangpy wheel,
reached by its C interface; the same source gives the same bytes.
"""

import argparse
import ctypes
import hashlib
import importlib.util
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from threading import local

from edgequant.device import step
from edgequant.graph import kernels

SHADERS = Path(__file__).resolve().parent
PRINTED = SHADERS / "lib"
SPIRV = SHADERS / "generated" / "spirv"
STAMPS = SHADERS.parent / ".stamps" / "shaders.json"
FLAGS = ("-target", "spirv", "-stage", "compute", "-O2", "-warnings-as-errors", "all", "-DWORKGROUP=THREADS")

KERNEL = re.compile(r"^// kernel (\S+)(.*)$", re.MULTILINE)
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
ENTRY = re.compile(r"\[numthreads\([^\]]*\)\]\s*void (\w+)")
PLACES = ("{format}", "{dot_format}")
TEXT_ONLY = {3, 5, 6, 7}  # OpSource, OpName, OpMemberName, OpString


@dataclass(frozen=True)
class Kernel:
    """One compiled file: its stem, source, and defines; `format` is a file of formats/, or none."""

    name: str
    source: Path
    defines: tuple[str, ...] = ()
    format: Path | None = None

    @property
    def arguments(self) -> tuple[str, ...]:
        """What slangc is told, but for the output."""
        defines = self.defines
        if self.format is not None:
            inside = self.format.relative_to(SHADERS).as_posix()
            defines += (f"-DFORMAT={self.format.stem.upper()}", f'-DFORMAT_FILE="{inside}"')
        return (str(self.source), "-entry", self.source.stem, *FLAGS, f"-I{SHADERS}", *defines)

    @property
    def stamp(self) -> str:
        """Return a digest of all that the result depends on."""
        digest = hashlib.sha256(f"{version('slangpy')}{FLAGS}{self.defines}".encode())
        sources = included(self.source) | (included(self.format) if self.format else set())
        for path in sorted(sources - {PRINTED / "arguments.slang"}):
            digest.update(path.read_bytes())
        text = self.source.read_text()
        for arguments in kernels.all_arguments():
            if arguments.name in text:  # so that one family's change leaves the others alone
                digest.update(arguments.slang().encode())
        return digest.hexdigest()


def included(path: Path) -> set[Path]:
    """Return a source and all it includes."""
    found, left = set(), [path]
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            left += [SHADERS / name for name in INCLUDE.findall(path.read_text())]
    return found


def all_kernels() -> tuple[Kernel, ...]:
    """Read what the sources say, in order of name."""
    formats = sorted((SHADERS / "formats").glob("*.slang"))
    found = []
    for source in sorted(SHADERS.glob("*.slang")):
        for name, defines in KERNEL.findall(source.read_text()):
            place = next((place for place in PLACES if place in name), None)
            if place is None:
                found.append(Kernel(name, source, tuple(defines.split())))
                continue
            for path in formats:
                if place == "{format}" or "IDotFormat" in path.read_text():
                    stem = name.replace(place, path.stem)
                    found.append(Kernel(stem, source, tuple(defines.split()), path))
    return tuple(sorted(found, key=lambda kernel: kernel.name))


class Compiler:
    """slangc. A session serves one thread."""

    def __init__(self) -> None:
        package = importlib.util.find_spec("slangpy")
        if package is None or package.origin is None:
            sys.exit("slangpy is missing. Hint: make setup")
        (library,) = Path(package.origin).parent.glob("libslang-compiler.so*")
        self._library = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        for made in ("spCreateSession", "spCreateCompileRequest", "spGetDiagnosticOutput"):
            getattr(self._library, made).restype = ctypes.c_void_p
        self._session = ctypes.c_void_p(self._library.spCreateSession(None))

    def compile(self, kernel: Kernel, output: Path) -> str:
        """Write a kernel; return what the compiler said, empty if all is well."""
        slang = self._library
        request = ctypes.c_void_p(slang.spCreateCompileRequest(self._session))
        # Declared in C++: the mangled name is that of gcc and clang.
        slang._Z28spSetCommandLineCompilerModePN5slang15ICompileRequestE(request)
        words = [word.encode() for word in (*kernel.arguments, "-o", str(output))]
        told = (ctypes.c_char_p * len(words))(*words)
        failed = slang.spProcessCommandLineArguments(request, told, len(words))
        failed = failed or slang.spCompile(request)
        said = ctypes.string_at(slang.spGetDiagnosticOutput(request)).decode()
        slang.spDestroyCompileRequest(request)
        if failed or said:
            return f"{kernel.name}: {said or hex(failed & 0xFFFFFFFF)}"
        output.write_bytes(without_names(output.read_bytes()))
        return ""


def without_names(spirv: bytes) -> bytes:
    """Drop the source language, which older validators do not know, and names of variables."""
    words = memoryview(spirv).cast("I")
    kept, at = bytearray(spirv[:20]), 5
    while at < len(words):
        opcode, length = words[at] & 0xFFFF, words[at] >> 16
        if opcode not in TEXT_ONLY:
            kept += spirv[4 * at : 4 * (at + length)]
        at += length
    return bytes(kept)


def printed() -> dict[str, str]:
    """Return what Python says of structs, by file of lib/."""
    note = "// Printed by `make shaders` from {}. Do not edit.\n\n#pragma once\n\n"
    structs = "\n".join(arguments.slang() for arguments in kernels.all_arguments())
    return {
        "arguments.slang": note.format("edgequant/graph/kernels/")
        + '#include "lib/step.slang"\n\n'
        + structs,
        "step.slang": note.format("edgequant/device/step.py") + step.slang(),
    }


_threads = local()


def build(wanted: Sequence[Kernel], folder: Path) -> Iterator[str]:
    """Compile kernels into a folder on all processors; yield what went wrong."""

    def one(kernel: Kernel) -> str:
        if not hasattr(_threads, "compiler"):
            _threads.compiler = Compiler()
        return _threads.compiler.compile(kernel, folder / f"{kernel.name}.spv")

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from filter(None, pool.map(one, wanted))


def make() -> list[str]:
    """Bring the generated files up to date."""
    for name, text in printed().items():
        path = PRINTED / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    SPIRV.mkdir(parents=True, exist_ok=True)
    STAMPS.parent.mkdir(exist_ok=True)
    known = json.loads(STAMPS.read_text()) if STAMPS.exists() else {}
    kernels_now = {kernel.name: kernel for kernel in all_kernels()}
    stamps = {name: kernel.stamp for name, kernel in kernels_now.items()}
    for path in SPIRV.glob("*.spv"):
        if path.stem not in kernels_now:
            path.unlink()
    stale = [
        kernel
        for name, kernel in kernels_now.items()
        if known.get(name) != stamps[name] or not (SPIRV / f"{name}.spv").exists()
    ]
    wrong = list(build(stale, SPIRV))
    broken = {line.split(":")[0] for line in wrong}
    STAMPS.write_text(json.dumps({k: v for k, v in stamps.items() if k not in broken}, indent=0))
    print(f"{len(stale)} of {len(kernels_now)} kernels compiled")
    return wrong


def check() -> list[str]:
    """Say what is checked in and would be made otherwise."""
    wrong = [
        f"lib/{name} is not what Python says"
        for name, text in printed().items()
        if (PRINTED / name).read_text() != text
    ]
    wanted = all_kernels()
    with tempfile.TemporaryDirectory() as folder:
        wrong += build(wanted, Path(folder))
        for kernel in wanted:
            made, kept = (d / f"{kernel.name}.spv" for d in (Path(folder), SPIRV))
            if made.exists() and (not kept.exists() or kept.read_bytes() != made.read_bytes()):
                wrong.append(f"generated/spirv/{kept.name} is not what {kernel.source.name} gives")
    names = {kernel.name for kernel in wanted}
    left = [path.name for path in SPIRV.glob("*.spv") if path.stem not in names]
    wrong += [f"generated/spirv/{name} has no source" for name in left]
    return wrong


def main() -> None:
    """Make, or check."""
    parser = argparse.ArgumentParser(description="Compile the shaders.")
    parser.add_argument("--check", action="store_true", help="compare only; write nothing")
    wrong = check() if parser.parse_args().check else make()
    if wrong:
        sys.exit("\n".join(wrong) + "\nHint: make shaders")


if __name__ == "__main__":
    main()
