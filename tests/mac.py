"""The GPU of a Mac: where there is one, tests of Metal run on it, and elsewhere on the CPU."""

from edgequant.device.metal import DEVICE
from edgequant.device.metal.device import open_metal
from edgequant.device.protocol import Gpu
from edgequant.device.unified import UnifiedGpu


def open_mac() -> Gpu | None:
    """Open it; None on a machine without."""
    return UnifiedGpu(open_metal()) if DEVICE.missing() is None else None
