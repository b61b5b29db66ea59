"""Compile every kernel to SPIR-V and MSL, and print what Python and the shaders must agree on.

    python shaders/build.py           remake what changed in generated/, and lib/'s printed files
    python shaders/build.py --check   remake all elsewhere, and fail if what is checked in differs

A source says which kernels are made of it, one a line, for both targets or for one:

    // kernel gate
    // spirv kernel matmul_16 -DT=16 -DLANES=32
    // metal kernel matmul_8 -DT=8 -DLANES=32
    // kernel matvec_{format}              one for each file of formats/
    // spirv kernel matvec_i8_{dot_format} one for each format that implements IDotFormat

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

from msl import readable

from edgequant.device import step
from edgequant.graph import kernels

SHADERS = Path(__file__).resolve().parent
PRINTED = SHADERS / "lib"
GENERATED = SHADERS / "generated"
STAMPS = SHADERS.parent / ".stamps" / "shaders.json"
FLAGS = ("-stage", "compute", "-warnings-as-errors", "all")

KERNEL = re.compile(r"^// (?:(spirv|metal) )?kernel (\S+)(.*)$", re.MULTILINE)
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
PLACES = ("{format}", "{dot_format}")
TEXT_ONLY = {3, 5, 6, 7}  # OpSource, OpName, OpMemberName, OpString


@dataclass(frozen=True)
class Target:
    """What kernels are compiled to; a folder of generated/ has its name."""

    name: str
    suffix: str
    flags: tuple[str, ...]


SPIRV = Target("spirv", ".spv", ("-O2", "-DWORKGROUP=THREADS"))
# Slang takes no constant as the size of a workgroup here: the host passes it with each dispatch.
# Loops are left to Metal's compiler, so that one can read what it gets.
METAL = Target(
    "metal",
    ".metal",
    ("-DMETAL=1", "-DWORKGROUP=1", "-DForceUnroll=unroll", "-line-directive-mode", "none"),
)
TARGETS = (SPIRV, METAL)


@dataclass(frozen=True)
class Kernel:
    """One compiled file: its stem, source, and defines; `format` is a file of formats/, or none."""

    name: str
    target: Target
    source: Path
    defines: tuple[str, ...] = ()
    format: Path | None = None

    @property
    def path(self) -> str:
        """Where it is, from generated/ on."""
        return f"{self.target.name}/{self.name}{self.target.suffix}"

    @property
    def arguments(self) -> tuple[str, ...]:
        """What slangc is told, but for the output."""
        defines = self.defines
        if self.format is not None:
            inside = self.format.relative_to(SHADERS).as_posix()
            defines += (f"-DFORMAT={self.format.stem.upper()}", f'-DFORMAT_FILE="{inside}"')
        target = ("-target", self.target.name, *FLAGS, *self.target.flags)
        return (str(self.source), "-entry", self.source.stem, *target, f"-I{SHADERS}", *defines)

    @property
    def stamp(self) -> str:
        """Return a digest of all that the result depends on."""
        told = (version("slangpy"), self.target, FLAGS, self.defines)
        digest = hashlib.sha256(repr(told).encode())
        sources = included(self.source) | (included(self.format) if self.format else set())
        if self.target == METAL:
            sources |= set((SHADERS / "msl").glob("*.py"))
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
    """Read what the sources say, in order of path."""
    formats = sorted((SHADERS / "formats").glob("*.slang"))
    found = []
    for source in sorted(SHADERS.glob("*.slang")):
        for only, name, told in KERNEL.findall(source.read_text()):
            place = next((place for place in PLACES if place in name), None)
            of = [
                path for path in formats if place == "{format}" or "IDotFormat" in path.read_text()
            ]
            for target in TARGETS:
                if only not in ("", target.name):
                    continue
                defines = tuple(told.split())
                if place is None:
                    found.append(Kernel(name, target, source, defines))
                    continue
                found += [
                    Kernel(name.replace(place, path.stem), target, source, defines, path)
                    for path in of
                ]
    return tuple(sorted(found, key=lambda kernel: kernel.path))


class Compiler:
    """slangc. A session serves one thread."""

    def __init__(self) -> None:
        package = importlib.util.find_spec("slangpy")
        if package is None or package.origin is None:
            sys.exit("slangpy is missing. Hint: make setup")
        (library,) = Path(package.origin).parent.glob("libslang-compiler.so*")
        self._library = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        for made in ("Session", "CompileRequest"):
            getattr(self._library, f"spCreate{made}").restype = ctypes.c_void_p
        for told in ("GetDiagnosticOutput", "GetReflection", "Reflection_getEntryPointByIndex"):
            getattr(self._library, f"sp{told}").restype = ctypes.c_void_p
        self._session = ctypes.c_void_p(self._library.spCreateSession(None))

    def compile(self, kernel: Kernel, output: Path) -> str:
        """Write a kernel; return what the compiler said, empty if all is well."""
        slang = self._library
        request = ctypes.c_void_p(slang.spCreateCompileRequest(self._session))
        try:
            # Declared in C++: the mangled name is that of gcc and clang.
            slang._Z28spSetCommandLineCompilerModePN5slang15ICompileRequestE(request)
            words = [word.encode() for word in (*kernel.arguments, "-o", str(output))]
            told = (ctypes.c_char_p * len(words))(*words)
            failed = slang.spProcessCommandLineArguments(request, told, len(words))
            failed = failed or slang.spCompile(request)
            said = ctypes.string_at(slang.spGetDiagnosticOutput(request)).decode()
            if failed or said:
                return f"{kernel.path}: {said or hex(failed & 0xFFFFFFFF)}"
            if kernel.target == SPIRV:
                output.write_bytes(without_names(output.read_bytes()))
            else:
                first = f"// entry {kernel.source.stem}, threads {self._threads(request)}"
                output.write_text(f"{first}\n{readable(output.read_text())}")
            return ""
        finally:
            slang.spDestroyCompileRequest(request)

    def _threads(self, request: ctypes.c_void_p) -> str:
        """Return the size of a workgroup as the first line of a Metal source says it."""
        slang = self._library
        program = ctypes.c_void_p(slang.spGetReflection(request))
        entry = ctypes.c_void_p(slang.spReflection_getEntryPointByIndex(program, ctypes.c_uint(0)))
        sizes = (ctypes.c_uint64 * 3)()
        slang.spReflectionEntryPoint_getComputeThreadGroupSize(entry, ctypes.c_uint64(3), sizes)
        return "constant 0" if tuple(sizes) == (1, 1, 1) else " ".join(map(str, sizes))


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
        return _threads.compiler.compile(kernel, folder / kernel.path)

    for target in TARGETS:
        (folder / target.name).mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from filter(None, pool.map(one, wanted))


def left_over(wanted: Sequence[Kernel]) -> Iterator[Path]:
    """Yield what is in generated/ and has no source."""
    paths = {GENERATED / kernel.path for kernel in wanted}
    for target in TARGETS:
        yield from (p for p in (GENERATED / target.name).glob("*") if p not in paths)


def make() -> list[str]:
    """Bring the generated files up to date."""
    for name, text in printed().items():
        path = PRINTED / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    STAMPS.parent.mkdir(exist_ok=True)
    known = json.loads(STAMPS.read_text()) if STAMPS.exists() else {}
    wanted = all_kernels()
    stamps = {kernel.path: kernel.stamp for kernel in wanted}
    for path in left_over(wanted):
        path.unlink()
    stale = [
        kernel
        for kernel in wanted
        if known.get(kernel.path) != stamps[kernel.path] or not (GENERATED / kernel.path).exists()
    ]
    wrong = list(build(stale, GENERATED))
    broken = {line.split(":")[0] for line in wrong}
    STAMPS.write_text(json.dumps({k: v for k, v in stamps.items() if k not in broken}, indent=0))
    print(f"{len(stale)} of {len(wanted)} kernels compiled")
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
            made, kept = (d / kernel.path for d in (Path(folder), GENERATED))
            if made.exists() and (not kept.exists() or kept.read_bytes() != made.read_bytes()):
                wrong.append(f"generated/{kernel.path} is not what {kernel.source.name} gives")
    return [*wrong, *(f"{path} has no source" for path in left_over(wanted))]


def main() -> None:
    """Make, or check."""
    parser = argparse.ArgumentParser(description="Compile the shaders.")
    parser.add_argument("--check", action="store_true", help="compare only; write nothing")
    wrong = check() if parser.parse_args().check else make()
    if wrong:
        sys.exit("\n".join(wrong) + "\nHint: make shaders")


if __name__ == "__main__":
    main()
