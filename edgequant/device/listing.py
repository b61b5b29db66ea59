"""What a device of this machine says of itself, for `edgequant devices`."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from edgequant.device.self_test import Verdict
from edgequant.graph.launch import Limits


@dataclass(frozen=True)
class Listing:
    """One device.

    Attributes:
        name: as given to `--device`, such as "vulkan:1".
        hardware: what computes, with its name or the library's.
        driver: its name and version; empty where there is none to name.
        kind: such as "discrete GPU".
        uuid: of the hardware, hexadecimal; empty where it has none.
        memory_bytes: of its own; None where it is the machine's.
        missing: why it cannot be used, or None.
        abilities: what it can do that not all can, in words.
        passed: block formats whose kernels passed the self-test; None where nothing is tested.
        examine: runs the self-test for formats; None where nothing is tested.
    """

    name: str
    hardware: str
    driver: str = ""
    kind: str = "CPU"
    uuid: str = ""
    memory_bytes: int | None = None
    missing: str | None = None
    abilities: tuple[str, ...] = ()
    passed: Collection[str] | None = None
    examine: Callable[[Iterable[str]], Iterator[Verdict]] | None = None


def abilities(limits: Limits) -> list[str]:
    """Say what a GPU can do that not all can."""
    found = [f"subgroups of {limits.subgroup}"]
    if limits.cooperative_matrix is not None:
        found.append(f"matrices of {' x '.join(map(str, limits.cooperative_matrix))}")
    if limits.integer_dot:
        found.append("int8 dot products")
    return found
