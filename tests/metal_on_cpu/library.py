"""Metal libraries compiled for the CPU, and their kernels run there.

A library stands for an MTLLibrary and all its pipelines: function constants are set when a kernel
runs, so that a source is compiled once whatever they are.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from metal_on_cpu.translate import Translated, translate

HERE = Path(__file__).parent
INCLUDE = HERE / "include"
OLDEST, NEWEST = 18, 24  # clang: `this` as a parameter that is deduced
MOST_SHARED = 32 << 10  # bytes of threadgroup memory
MOST_THREADS = 1024

LANGUAGE = ("-std=c++23", "-I", str(INCLUDE), "-fno-lax-vector-conversions", "-ferror-limit=3",
            "-Wall", "-Werror", "-Wno-unused", "-Wno-parentheses-equality",
            "-Wno-duplicate-decl-specifier", "-Wno-pass-failed")  # fmt: skip
CODE = ("-O1", "-fPIC", "-shared", "-ffp-contract=off", "-mf16c", "-mfma", "-fno-math-errno",
        "-fno-exceptions", "-fno-rtti")  # fmt: skip
CHECKED = ("-DSHIM_FLAT", "-ftrivial-auto-var-init=pattern", "-fno-sanitize-recover=all",
           "-fsanitize=alignment,integer-divide-by-zero,bounds",
           "-fsanitize-coverage=func,trace-loads,trace-stores")  # fmt: skip

Memory = Sequence[tuple[int, int, bool]]


class ShaderError(Exception):
    """A source that does not compile, or a kernel that does what it may not."""


@cache
def find_compiler() -> str | None:
    """Return a clang++ that is new enough, or None."""
    names = [f"clang++-{version}" for version in range(NEWEST, OLDEST - 1, -1)]
    for name in (os.environ.get("EDGEQUANT_CLANG", "clang++"), *names):
        path = shutil.which(name)
        if path is None:
            continue
        said = subprocess.run([path, "-dumpversion"], capture_output=True, text=True, check=False)
        if said.returncode == 0 and int(said.stdout.split(".")[0]) >= OLDEST:
            return path
    return None


def missing() -> str | None:
    """Return why nothing can be compiled here; None if it can."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return "Metal runs on the CPU of x86-64 Linux only"
    if find_compiler() is None:
        return f"there is no clang++ {OLDEST} or newer (Debian: clang-19)"
    return None


@cache
def folder() -> Path:
    """Return where compiled libraries are kept: EDGEQUANT_METAL_CACHE, or a folder of this run."""
    named = os.environ.get("EDGEQUANT_METAL_CACHE")
    if named:
        Path(named).mkdir(parents=True, exist_ok=True)
        return Path(named)
    made = tempfile.TemporaryDirectory(prefix="metal-on-cpu-")
    _kept.append(made)
    return Path(made.name)


_kept: list[tempfile.TemporaryDirectory[str]] = []


class _Range(ctypes.Structure):
    _fields_ = (("begin", ctypes.c_uint64), ("end", ctypes.c_uint64), ("writes", ctypes.c_uint32))


class _Launch(ctypes.Structure):
    """`ShimLaunch` of include/memory.h."""

    _fields_ = (
        ("body", ctypes.c_void_p),
        ("arguments", ctypes.c_char_p),
        ("argument_nbytes", ctypes.c_uint64),
        ("image", ctypes.c_void_p * 4),
        ("ranges", ctypes.POINTER(_Range)),
        ("range_count", ctypes.c_int64),
        ("groups", ctypes.c_uint32 * 3),
        ("threads", ctypes.c_uint32 * 3),
        ("simd", ctypes.c_uint32),
        ("order", ctypes.c_uint32),
    )


class Library:
    """A compiled source with its function constants."""

    def __init__(self, path: Path, kernels: Sequence[str], constants: Mapping[int, int]) -> None:
        self.kernels = tuple(kernels)
        self._library = ctypes.CDLL(str(path))
        self._image = (ctypes.c_void_p * 4).in_dll(self._library, "shim_image")
        self._given = sum(1 << number for number in constants)
        most = max(constants, default=0) + 1
        values = (constants.get(number, 0) & 0xFFFFFFFF for number in range(most))
        self._values = (ctypes.c_uint32 * most)(*values)

    @property
    def shared_nbytes(self) -> int:
        """Bytes of threadgroup memory of all kernels together."""
        return self._image[1] - self._image[0] - 16

    def dispatch(
        self,
        entry: str,
        arguments: bytes,
        groups: tuple[int, int, int],
        threads: tuple[int, int, int],
        *,
        simd: int = 32,
        order: int = 0,
        memory: Memory | None = None,
    ) -> None:
        """Run a kernel to its end.

        Args:
            entry: its name.
            arguments: the struct at buffer 0; addresses in it are of this process.
            groups: threadgroups of the grid.
            threads: of a threadgroup.
            simd: lanes of a SIMD-group, at most 64.
            order: in which threads take turns: 0 as numbered, 1 backwards, 2 in strides.
            memory: (address, bytes, whether it may be written) of all that may be touched, if a
                library is compiled to be checked; by default nothing is forbidden.

        Raises:
            ShaderError: there is no such kernel, the threadgroup is too large, or what the kernel
                did wrong.
        """
        count = threads[0] * threads[1] * threads[2]
        if entry not in self.kernels:
            raise ShaderError(f"{entry}: the library has {', '.join(self.kernels)}.")
        if not 0 < count <= MOST_THREADS:
            raise ShaderError(f"{entry}: {count} threads; a threadgroup has up to {MOST_THREADS}.")
        if self.shared_nbytes > MOST_SHARED:
            raise ShaderError(
                f"{entry}: {self.shared_nbytes} bytes of threadgroup memory; "
                f"there are {MOST_SHARED}."
            )
        ranges = [_Range(a, a + n, writes) for a, n, writes in memory or ()]
        ranges.sort(key=lambda r: -r.writes)  # first those that are watched
        launch = _Launch(
            body=ctypes.cast(self._library[f"shim_{entry}"], ctypes.c_void_p),
            arguments=arguments,
            argument_nbytes=len(arguments),
            image=self._image,
            ranges=(_Range * len(ranges))(*ranges),
            range_count=-1 if memory is None else len(ranges),
            groups=groups,
            threads=threads,
            simd=simd,
            order=order,
        )
        with _running:
            self._library.shim_constants(self._given, self._values)
            said = _runtime().shim_run(ctypes.byref(launch))
        if said is not None:
            raise ShaderError(f"{entry}: {said.decode()}.")


_running = threading.Lock()  # the runtime runs one kernel at a time


def compile_library(
    source: str, constants: Mapping[int, int] | None = None, *, sanitize: bool = False
) -> Library:
    """Compile a Metal source, unless it was before.

    Args:
        source: of the library.
        constants: values of function constants, by number.
        sanitize: watch what it does: alignment, indices, shifts, bounds and races.

    Raises:
        ShaderError: the compiler's messages.
    """
    path, kernels = compiled(source, sanitize=sanitize)
    return Library(path, kernels, constants or {})


@cache
def compiled(source: str, *, sanitize: bool) -> tuple[Path, tuple[str, ...]]:
    """Return where a source lies compiled, and its kernels.

    Raises:
        ShaderError: the compiler's messages.
    """
    try:
        translated = translate(source)
    except ValueError as error:
        raise ShaderError(str(error)) from error
    _runtime()
    flags = (*LANGUAGE, *CODE, *(CHECKED if sanitize else ()))
    path = folder() / f"{_digest(translated.text, flags)}.so"
    with _lock_of(path):
        if not path.exists():
            if sanitize:  # sanitizers know no address spaces, so these are looked at apart
                _compile(translated, (*LANGUAGE, "-fsyntax-only"), None)
            _compile(translated, flags, path)
    return path, translated.kernels


@cache
def _lock_of(path: Path) -> threading.Lock:
    """Return a lock, so that threads that want the same library wait for one to make it."""
    return threading.Lock()


def _compile(translated: Translated, flags: Sequence[str], path: Path | None) -> None:
    _clang(("-x", "c++", "-", *flags), path, translated.text)


def _clang(arguments: Sequence[str], path: Path | None, text: str = "") -> None:
    compiler = find_compiler()
    if compiler is None:
        raise ShaderError(f"{missing()}.")
    part = path and path.with_suffix(f".{os.getpid()}.part")  # others may make it too
    output = ("-o", str(part)) if part else ()
    said = subprocess.run(
        [compiler, *arguments, *output], input=text, text=True, capture_output=True, check=False
    )
    if said.returncode:
        raise ShaderError(said.stderr.strip())
    if part and path:
        part.replace(path)


def _digest(text: str, flags: Sequence[str]) -> str:
    digest = hashlib.sha256(f"{find_compiler()}{flags}".encode())
    for path in sorted([*INCLUDE.iterdir(), *HERE.glob("*.cpp")]):
        digest.update(path.read_bytes())
    digest.update(text.encode())
    return digest.hexdigest()[:24]


@cache
def _runtime() -> ctypes.CDLL:
    """Return the runtime, which compiled kernels find by its names."""
    flags = ("-std=c++23", "-I", str(INCLUDE), "-O2", "-fPIC", "-shared", "-Wall", "-Werror")
    path = folder() / f"{_digest('', flags)}.so"
    with _lock_of(path):
        if not path.exists():
            _clang((*map(str, sorted(HERE.glob("*.cpp"))), *flags), path)
    loaded = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    loaded.shim_run.restype = ctypes.c_char_p
    return loaded
