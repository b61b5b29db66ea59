"""Vulkan: every GPU but Apple's, through the system's Vulkan library and ctypes.

Why an own host: PyPI's `vulkan` is unmaintained, and the address of a buffer cannot be asked for in
it; wgpu and slangpy cannot import a mapped file and take 2 to 5 ms for a token of 300 dispatches.
This host takes one submission of a recording, some 15 us. It uses what is common to all drivers of
Vulkan 1.3: kernels reach memory by address, so there are no descriptors; arguments are push
constants; one timeline semaphore orders everything.

`structs` and `api` are the library's vocabulary, `hardware` what is in the machine, `logical` a
device with its queue; `memory`, `transfer`, `pipelines` and `recording` are what is made on it, and
`device` has the verbs of `Gpu`. Nothing outside this folder names a Vulkan type, and nothing is
loaded before a device is asked for.
"""

from typing import TYPE_CHECKING

from edgequant.device import Choice, Entry
from edgequant.errors import DeviceError

if TYPE_CHECKING:
    from edgequant.device.listing import Listing
    from edgequant.device.protocol import Device


def _missing() -> str | None:
    """Return why no Vulkan device can be used, or None."""
    from edgequant.device.vulkan.hardware import found

    try:
        devices = found()
    except DeviceError as error:
        return error.what
    if devices is None:
        return "no Vulkan library is installed (Debian: libvulkan1)."
    if not devices:
        return "no Vulkan driver finds a device."
    if all(hardware.lacking for hardware in devices):
        return f"{devices[0].name} lacks {', '.join(devices[0].lacking)}."
    return None


def _worthwhile() -> bool:
    """Whether a device is hardware: a driver that computes on the CPU is slower than other ways."""
    from edgequant.device.vulkan.hardware import found

    return any(not (device.lacking or device.computes_on_cpu) for device in found() or ())


def _open(index: str, choice: Choice) -> "Device":
    """Open a device; it stays open until Python ends, when its compiled kernels are kept."""
    from edgequant.device.gpu import GpuDevice
    from edgequant.device.vulkan.device import notes_of, open_gpu

    gpu = open_gpu(index)
    name = f"vulkan:{index}" if index else "vulkan"
    return GpuDevice.lasting(name, gpu, notes_of(gpu.hardware), choice)


def _listed() -> tuple["Listing", ...]:
    """Describe each device of this machine."""
    from edgequant.device.vulkan.listing import describe

    return describe() if _missing() is None else ()


DEVICE = Entry(
    name="vulkan",
    rank=20,
    missing=_missing,
    open=_open,
    observes=True,
    caches=("f16", "q8_0", "f32"),
    worthwhile=_worthwhile,
    listed=_listed,
)
