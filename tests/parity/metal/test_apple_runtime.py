"""The part that talks to the real Objective-C runtime, through libraries of C that stand for it.

As in the real one, sending a message jumps to a function, with the arguments as they came: here a
selector is its function. So what is proven is that values pass by their C prototypes; but not that
structures come back, for which x86_64 has another way than arm64.
"""

import ctypes
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from edgequant.device.metal import objc
from edgequant.device.metal.objc import AppleRuntime, Messages, Size

SOURCE = r"""
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
typedef struct { uint64_t width, height, depth; } Size;
#ifdef __APPLE__
#define NAME "_objc_msgSend"
#else
#define NAME "objc_msgSend"
#endif
#ifdef __x86_64__
__asm__(".globl " NAME "\n" NAME ": jmp *%rsi\n");
#else
__asm__(".globl " NAME "\n" NAME ": br x1\n");
#endif
static uint64_t pools, noted[8];
static uint64_t code(void *self, void *op) { return noted[(uintptr_t)self]; }
static void dispatch(void *self, void *op, Size groups, Size threads) {
  noted[0] = groups.width; noted[1] = groups.height; noted[2] = groups.depth;
  noted[3] = threads.width; noted[4] = threads.height; noted[5] = threads.depth;
}
static double ended(void *self, void *op) { return (uintptr_t)self + 0.25; }
static bool supports(void *self, void *op, int64_t family) { return family == 1007; }
static const char *text(void *self, void *op) { return "M1"; }
static void bytes(void *self, void *op, const char *from, uint64_t count, uint64_t index) {
  noted[6] = (uint64_t)from[count - 1] + index; noted[7] = pools;
}
void *sel_registerName(const char *name) {
  return !strcmp(name, "code") ? (void *)code
    : !strncmp(name, "dispatch", 8) ? (void *)dispatch
    : !strcmp(name, "GPUEndTime") ? (void *)ended
    : !strcmp(name, "supportsFamily:") ? (void *)supports
    : !strcmp(name, "UTF8String") ? (void *)text
    : (void *)bytes;
}
void *objc_getClass(const char *name) { return strcmp(name, "NSString") ? 0 : (void *)5; }
void *objc_autoreleasePoolPush(void) { return (void *)++pools; }
void objc_autoreleasePoolPop(void *pool) { pools = (uint64_t)pool - 1; }
void *MTLCreateSystemDefaultDevice(void) { return (void *)7; }
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("c++")
    assert compiler is not None, "a C compiler compiled llama.cpp here"
    folder = tmp_path_factory.mktemp("objc")
    (folder / "objc.c").write_text(SOURCE)
    made = folder / "objc.so"
    command = [compiler, "-x", "c", "-shared", "-fPIC", "-o", str(made), str(folder / "objc.c")]
    subprocess.run(command, check=True)
    return made


@pytest.fixture
def loaded(library: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the libraries that were asked for, instead of which this one is loaded."""
    names: list[str] = []
    load = ctypes.CDLL

    def stand_in(name: str) -> ctypes.CDLL:
        names.append(name)
        return load(str(library))

    monkeypatch.setattr(ctypes, "CDLL", stand_in)
    return names


@pytest.mark.oracle
def test_values_pass_as_c_has_them(loaded: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    runtime = objc.find_runtime()
    assert isinstance(runtime, AppleRuntime)
    assert [name.rpartition("/")[2] for name in loaded] == [
        "libobjc.A.dylib", "CoreGraphics", "Metal",
    ]  # fmt: skip
    send = Messages(runtime)
    assert runtime.default_device() == 7
    assert (runtime.class_named("NSString"), runtime.class_named("NSNothing")) == (5, None)
    assert send(9, "GPUEndTime") == 9.25
    assert [send(9, "supportsFamily:", family) for family in (1007, 1008)] == [True, False]
    assert send.text(9) == "M1"
    send(9, "dispatchThreadgroups:threadsPerThreadgroup:", Size(1, 2, 3), Size(4, 5, 6))
    with send.pool(), send.pool():
        send(9, "setBytes:length:atIndex:", b"ab\0c", 4, 1)
    assert [send(number, "code") for number in range(8)] == [1, 2, 3, 4, 5, 6, ord("c") + 1, 2]
    assert runtime.push_pool() == 1
