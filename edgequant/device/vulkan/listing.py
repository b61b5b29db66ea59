"""The Vulkan devices of this machine in words."""

from functools import partial

from edgequant.device.listing import Listing, abilities
from edgequant.device.self_test import examine, passed
from edgequant.device.vulkan.device import VulkanGpu, notes_of
from edgequant.device.vulkan.hardware import Hardware, found


def describe() -> tuple[Listing, ...]:
    """Describe each device; none is opened."""
    return tuple(_describe(f"vulkan:{i}", device) for i, device in enumerate(found() or ()))


def _describe(name: str, hardware: Hardware) -> Listing:
    lacking = ", ".join(hardware.lacking)
    notes = notes_of(hardware)
    able = [f"Vulkan {'.'.join(map(str, hardware.version))}", *abilities(hardware.limits)]
    if hardware.adopts_in_place:
        able.append("reads files in place")
    return Listing(
        name=name,
        hardware=hardware.name,
        driver=hardware.driver,
        kind=hardware.kind,
        uuid=hardware.uuid,
        memory_bytes=hardware.memory_bytes,
        missing=f"it lacks {lacking}." if lacking else None,
        abilities=tuple(able),
        passed=None if lacking else sorted(passed(notes)),
        examine=None if lacking else partial(examine, partial(VulkanGpu, hardware), name, notes),
    )
