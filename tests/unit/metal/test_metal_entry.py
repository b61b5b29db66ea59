"""Metal among the devices: why it is not there, and that it comes first where it is."""

import platform
from pathlib import Path

import pytest
from add_one_kernel import AddOne
from pretend_metal import PretendMetal
from pretend_metal.limits import Limits

from edgequant.device import open_device
from edgequant.device.listing import Listing
from edgequant.device.metal import DEVICE, objc
from edgequant.errors import DeviceError


@pytest.mark.parametrize(
    ("families", "present", "lacking"),
    [
        ((), False, "the system has no Metal device."),
        ((5001,), True, "Pretend M1 is older than Apple7, which A14 and M1 are."),
        ((1007,), True, "the system is older than macOS 13 and iOS 16, which have Metal 3."),
    ],
)
def test_what_is_too_old(
    families: tuple[int, ...], present: bool, lacking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mac = PretendMetal(AddOne(), limits=Limits(families=frozenset(families)), present=present)
    monkeypatch.setattr(objc, "find_runtime", lambda: mac)
    assert DEVICE.missing() == lacking
    with pytest.raises(DeviceError, match="metal: ") as caught:
        open_device("metal")
    assert caught.value.what == f"metal: {lacking}"
    assert DEVICE.listed is not None
    assert DEVICE.listed() == ()
    assert mac.alive() == []


@pytest.mark.parametrize(
    ("system", "machine", "reason"),
    [
        ("Linux", "x86_64", "Metal is Apple's, and this machine runs Linux."),
        ("Darwin", "x86_64", "this Python is built for x86_64; Apple's GPUs want one for arm64."),
    ],
)
def test_where_there_is_no_metal(
    system: str, machine: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    with pytest.raises(DeviceError) as caught:
        open_device("metal")
    assert str(caught.value) == (f"metal: {reason}\nHint: use --device auto, or --device cpu.")


def test_it_is_taken_and_listed_first(
    mac: PretendMetal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(objc, "find_runtime", lambda: mac)
    registered: list[object] = []
    monkeypatch.setattr("atexit.register", registered.append)
    device = open_device("auto", observe=True)
    assert (device.name, device.cache, device.threads) == ("metal", "f32", 0)
    assert device.activations == "float32 (decode), float16 (prefill)"
    (close,) = registered
    close()  # type: ignore[operator]
    with pytest.raises(DeviceError, match="metal:1: there is one such device"):
        open_device("metal:1")
    assert DEVICE.listed is not None
    (listing,) = DEVICE.listed()
    assert isinstance(listing, Listing)
    assert (listing.name, listing.hardware, listing.memory_bytes) == (
        "metal",
        "Pretend M1",
        8 << 30,
    )
    assert listing.abilities == (
        "Metal 3", "subgroups of 32", "matrices of 8 x 8 x 8", "reads files in place",
    )  # fmt: skip
    assert listing.passed == []
    assert mac.alive() == []
