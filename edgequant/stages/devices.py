"""The devices of this machine: what they are, what they can do, whether their kernels are right."""

import platform
from collections.abc import Sequence
from dataclasses import dataclass

from edgequant import __version__
from edgequant.device import list_devices
from edgequant.device.listing import Listing
from edgequant.errors import DeviceError
from edgequant.formats import names
from edgequant.progress import SILENT, Progress
from edgequant.stages.whole_model import try_whole_model


@dataclass(frozen=True)
class DeviceReport:
    """One device; see `Listing`.

    Attributes:
        auto: whether `--device auto` takes it.
        self_test: by block format, "passed", "no kernel", or what was wrong; None where nothing is
            to be tested, and without a format that was not tested yet.
        whole_model: what a small model did, "passed" or what was wrong; None if it was not tried.
    """

    name: str
    auto: bool
    hardware: str
    driver: str
    kind: str
    uuid: str
    memory_bytes: int | None
    missing: str | None
    abilities: tuple[str, ...]
    self_test: dict[str, str] | None
    whole_model: str | None

    @property
    def wrong(self) -> dict[str, str]:
        """The formats whose kernels failed."""
        return {k: v for k, v in (self.self_test or {}).items() if v not in ("passed", "no kernel")}

    @property
    def failed(self) -> bool:
        """Whether anything that was tried is wrong."""
        return bool(self.wrong) or self.whole_model not in (None, "passed")


@dataclass(frozen=True)
class DevicesReport:
    """All devices, best first, and the software that found them."""

    system: str
    devices: Sequence[DeviceReport]


def devices(*, self_test: bool = False, progress: Progress = SILENT) -> DevicesReport:
    """List the devices.

    Args:
        self_test: try the kernels of every format again, and a whole model.
        progress: told of each format.
    """
    reports = []
    for listing, auto in list_devices():
        results = whole = None
        if listing.examine is not None:
            passed = dict.fromkeys(listing.passed or (), "passed")
            results = _examine(listing, progress) if self_test else passed
            whole = _try(listing) if self_test else None
        reports.append(
            DeviceReport(
                name=listing.name,
                auto=auto,
                hardware=listing.hardware,
                driver=listing.driver,
                kind=listing.kind,
                uuid=listing.uuid,
                memory_bytes=listing.memory_bytes,
                missing=listing.missing,
                abilities=listing.abilities,
                self_test=results,
                whole_model=whole,
            )
        )
    software = f"edgequant {__version__}, Python {platform.python_version()}"
    return DevicesReport(f"{software}, {platform.platform()}", tuple(reports))


def _examine(listing: Listing, progress: Progress) -> dict[str, str]:
    """Run the self-test of every format."""
    assert listing.examine is not None
    results = {}
    progress.begin(f"Testing {listing.name}", len(names()), "formats")
    for verdict in listing.examine(names()):
        if verdict.error is None:
            results[verdict.format] = "no kernel"
        elif verdict.passed:
            results[verdict.format] = "passed"
        else:
            results[verdict.format] = f"{verdict.worst}: error {verdict.error:.1e}"
        progress.advance(1, verdict.format)
    progress.end()
    return results


def _try(listing: Listing) -> str:
    """Run a small model."""
    try:
        return try_whole_model(listing.name) or "passed"
    except DeviceError as error:
        return error.what
