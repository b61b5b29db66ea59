"""The Vulkan devices of this machine in words."""

from collections.abc import Iterable, Iterator
from functools import partial

from edgequant.device.listing import Listing
from edgequant.device.self_test import SelfTest, Verdict, passed
from edgequant.device.vulkan.device import VulkanGpu, notes_of
from edgequant.device.vulkan.hardware import Hardware, found


def describe() -> tuple[Listing, ...]:
    """Describe each device; none is opened."""
    return tuple(_describe(f"vulkan:{i}", device) for i, device in enumerate(found() or ()))


def _describe(name: str, hardware: Hardware) -> Listing:
    lacking = ", ".join(hardware.lacking)
    limits, matrix = hardware.limits, hardware.limits.cooperative_matrix
    abilities = [
        f"Vulkan {'.'.join(map(str, hardware.version))}",
        f"subgroups of {limits.subgroup}",
    ]
    if matrix is not None:
        abilities.append(f"matrices of {' x '.join(map(str, matrix))}")
    if limits.integer_dot:
        abilities.append("int8 dot products")
    if hardware.adopts_in_place:
        abilities.append("reads files in place")
    return Listing(
        name=name,
        hardware=hardware.name,
        driver=hardware.driver,
        kind=hardware.kind,
        uuid=hardware.uuid,
        memory_bytes=hardware.memory_bytes,
        missing=f"it lacks {lacking}." if lacking else None,
        abilities=tuple(abilities),
        passed=None if lacking else sorted(passed(notes_of(hardware))),
        examine=None if lacking else partial(_examine, name, hardware),
    )


def _examine(name: str, hardware: Hardware, formats: Iterable[str]) -> Iterator[Verdict]:
    gpu = VulkanGpu(hardware)
    try:
        yield from SelfTest(gpu, name, notes_of(hardware)).examine(formats)
    finally:
        gpu.close()
