"""How a GPU API that has one device on a machine presents it: as an entry among the devices.

It knows no API; nothing of one is loaded before it is asked for.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from edgequant.device import Choice, Entry
from edgequant.device.listing import Listing, abilities
from edgequant.device.protocol import Device
from edgequant.device.self_test import examine, passed
from edgequant.device.unified import Api, UnifiedGpu
from edgequant.errors import DeviceError

Opener = Callable[[], "Single"]


class Single(Api[Any, Any, Any], Protocol):
    """An `Api`, and what is to be known of its device.

    Attributes:
        name: of the hardware.
        driver: its name and version.
        edition: of the API, such as "Metal 3".
        notes: where is kept what passed the self-test.
    """

    name: str
    driver: str
    edition: str
    notes: Path


def single(name: str, rank: int, open_api: Opener) -> Entry:
    """Return the entry of an API.

    Args:
        name: what `--device` says.
        rank: see `Entry`.
        open_api: opens the device, or raises DeviceError.
    """
    return Entry(
        name=name,
        rank=rank,
        missing=partial(_missing, name, open_api),
        open=partial(_open, name, open_api),
        observes=True,
        caches=("f16", "q8_0", "f32"),
        listed=partial(_listed, name, open_api),
    )


def _missing(name: str, open_api: Opener) -> str | None:
    try:
        open_api().close(())
    except DeviceError as error:
        return error.what.removeprefix(f"{name}: ")
    return None


def _open(name: str, open_api: Opener, index: str, choice: Choice) -> Device:
    from edgequant.device.gpu import GpuDevice

    if index not in ("", "0"):
        raise DeviceError(
            f"{name}:{index}: there is one such device.", hint=f"use --device {name}."
        )
    api = open_api()
    return GpuDevice.lasting(name, UnifiedGpu(api), api.notes, choice)


def _listed(name: str, open_api: Opener) -> tuple[Listing, ...]:
    if _missing(name, open_api) is not None:
        return ()
    api = open_api()
    memory = api.memory()
    api.close(())
    able = (api.edition, *abilities(api.limits), "reads files in place")
    return (
        Listing(
            name=name,
            hardware=api.name,
            driver=api.driver,
            kind="integrated GPU",
            memory_bytes=None if memory is None else memory[1],
            abilities=able,
            passed=sorted(passed(api.notes)),
            examine=partial(examine, lambda: UnifiedGpu(open_api()), name, api.notes),
        ),
    )
