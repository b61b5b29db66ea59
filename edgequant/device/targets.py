"""What a bundle is made for: the systems it runs on, and what it may assume of their GPUs.

A recording is made before the GPU is met, so its limits are assumed: those that nearly every device
of the target has, where more would only be faster. Options may assume more, or less.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from edgequant.device.kernel_files import METAL, SPIRV, KernelFile, Language
from edgequant.errors import UnsupportedError
from edgequant.graph.launch import Limits

GIB = 1 << 30

# What every kernel needs, whatever it declares: bytes and halves in memory, reached by address, and
# workgroup sizes by specialization.
VULKAN_FEATURES = frozenset(
    (
        "bufferDeviceAddress",
        "storageBuffer8BitAccess",
        "storageBuffer16BitAccess",
        "maintenance4",
        "subgroupSizeControl",
        "computeFullSubgroups",
    )
)
_VULKAN: Mapping[str, object] = {"api": "Vulkan 1.3"}
_METAL_3: dict[str, object] = {
    "api": "Metal 3",
    "family": "Apple7",
    "language": "3.0",
    "fast_math": False,
}


@dataclass(frozen=True)
class Target:
    """A system.

    Attributes:
        name: as given to `--target`.
        language: of its kernels.
        limits: that its GPUs are assumed to have.
        subgroups: lanes that they are prepared for, where there is more than one kind; the most
            frequent first.
        needs: what else an app must ask for.
        why: the choice of the limits, for the bundle's reader.
    """

    name: str
    language: Language
    limits: Limits
    needs: Mapping[str, object]
    why: str
    subgroups: tuple[int, ...] = ()

    @property
    def assumed(self) -> tuple[Limits, ...]:
        """Limits that together suit the target's GPUs."""
        return tuple(replace(self.limits, subgroup=n) for n in self.subgroups) or (self.limits,)

    def needed(self, kernels: Iterable[KernelFile]) -> dict[str, object]:
        """Return what a device must have to run these kernels."""
        if self.language is METAL:
            return dict(self.needs)
        files = tuple(kernels)
        features = VULKAN_FEATURES.union(*(file.features for file in files))
        operations = set[str]().union(*(file.subgroup_operations for file in files))
        matrices = ["VK_KHR_cooperative_matrix"] if "cooperativeMatrix" in features else []
        return dict(self.needs) | {
            "features": sorted(features),
            "extensions": matrices,
            "subgroup_operations": sorted(operations),
        }


def _apple(name: str, system: str) -> Target:
    """Return the target of a system of Apple's, which all have the same GPUs."""
    return Target(
        name,
        METAL,
        Limits(32, 1024, 32 << 10, GIB, (8, 8, 8), integer_dot=False),
        _METAL_3 | {"system": system},
        "Every Apple GPU from A14 and M1 on has 32 lanes, 8 x 8 matrices and 32 KiB.",
    )


TARGETS = {
    target.name: target
    for target in (
        _apple("ios", "iOS 16"),
        Target(
            "android",
            SPIRV,
            Limits(64, 256, 32 << 10, GIB, None, integer_dot=True),
            _VULKAN,
            "What Vulkan 1.3 promises; subgroups as Adreno (64), Mali (16) and others (32) have "
            "them. Few phones have cooperative matrices.",
            subgroups=(64, 16, 32),
        ),
        _apple("macos", "macOS 13"),
        Target(
            "linux",
            SPIRV,
            Limits(32, 1024, 32 << 10, GIB, None, integer_dot=True),
            _VULKAN,
            "NVIDIA, AMD and Intel can all give 32 lanes, 1024 threads and 32 KiB. Their "
            "cooperative matrices differ: assume them with --matrix 16x16x16.",
        ),
    )
}


def find_target(name: str) -> Target:
    """Return the target of a name.

    Raises:
        UnsupportedError: there is none; the hint lists those known.
    """
    if name not in TARGETS:
        raise UnsupportedError(
            f"{name}: not a target that a bundle can be made for.",
            hint=f"use one of {', '.join(TARGETS)}.",
        )
    return TARGETS[name]
