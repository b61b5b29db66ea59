"""Kernels compiled from their Metal source.

No binary archive is kept: the system itself keeps what it compiles for a program, source and
machine code, until it is updated. Fast math is off: it changes how angles are reduced.
"""

import re
from contextlib import ExitStack
from ctypes import addressof, c_uint32, c_void_p
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from edgequant.device.compiled import Key
from edgequant.device.kernel_files import METAL
from edgequant.device.metal import objc
from edgequant.device.metal.objc import Messages, Object, Size
from edgequant.errors import DeviceError

LANES = 32  # of a SIMD group, on every GPU of Apple's
_ERROR = re.compile(r"program_source:(\d+):\d+: error: (.*)")


class Pipeline(NamedTuple):
    """A compiled kernel, and the threads of its threadgroups."""

    state: Object
    threads: Size


def compile_kernel(send: Messages, device: Object, name: str, shaders: Path, key: Key) -> Pipeline:
    """Compile a kernel for a device, whose name is for errors; the caller releases it.

    Raises:
        DeviceError: it does not compile, with Apple's message and the line it is about; or there is
            none, or the device cannot run as many threads.
    """
    kernel, constants = key
    file = METAL.find(shaders, kernel)
    with send.pool(), ExitStack() as made:

        def make(receiver: Object, selector: str, *arguments: Object) -> Any:
            error = c_void_p()
            found = send(receiver, selector, *arguments, addressof(error))
            if not found:
                said = send.text(send(error.value, "localizedDescription"))
                raise _refused(file.path, name, said)
            made.callback(send, found, "release")
            return found

        options, values = send.make("MTLCompileOptions"), send.make("MTLFunctionConstantValues")
        made.callback(send, options, "release")
        made.callback(send, values, "release")
        send(options, "setFastMathEnabled:", False)
        for number, constant in enumerate(constants):
            value, kind = c_uint32(constant), objc.DATA_TYPE_UINT
            send(values, "setConstantValue:type:atIndex:", addressof(value), kind, number)
        source, entry = send.string(file.path.read_text("utf-8")), send.string(file.entry)
        library = make(device, "newLibraryWithSource:options:error:", source, options)
        function = make(library, "newFunctionWithName:constantValues:error:", entry, values)
        state = make(device, "newComputePipelineStateWithFunction:error:", function)
        threads = file.threads(constants)
        has = send(state, "maxTotalThreadsPerThreadgroup"), send(state, "threadExecutionWidth")
        if prod(threads) > has[0] or has[1] != LANES:
            raise DeviceError(
                f"metal: {name} runs at most {has[0]} threads of kernel {kernel}, {has[1]} at a "
                f"time; {prod(threads)} are wanted, {LANES} at a time.",
                hint="use --device cpu, and please report it.",
            )
        return Pipeline(send(state, "retain"), Size(*threads))


def _refused(path: Path, device: str, message: str) -> DeviceError:
    """Say what the compiler said, and of which line."""
    found = _ERROR.search(message)
    if found is not None:
        line = path.read_text("utf-8").splitlines()[int(found[1]) - 1].strip()
        message = f"{found[2]}, in line {found[1]}: {line}"
    return DeviceError(
        f"metal: kernel {path.stem} does not compile on {device}: {message}",
        hint="update macOS or iOS, or use --device cpu; and please report it.",
    )
