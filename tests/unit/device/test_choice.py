"""What is asked of a device beside its name: refused where it cannot be had, else passed on."""

import pytest

from edgequant import device
from edgequant.device import Choice, Entry, open_device, wake
from edgequant.errors import DeviceError

opened: list[tuple[str, str, Choice]] = []


def entry(name: str, rank: int, **abilities: object) -> Entry:
    def open_(index: str, choice: Choice) -> None:
        opened.append((name, index, choice))

    return Entry(name, rank, lambda: None, open_, **abilities)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _devices(monkeypatch: pytest.MonkeyPatch) -> None:
    opened.clear()
    known = (
        entry("rounding", 1, exact=False),
        entry("gpu", 2, observes=True, caches=("f16", "q8_0", "f32")),
        entry("plain", 3, observes=True),
    )
    monkeypatch.setattr(device, "entries", lambda: known)


@pytest.mark.parametrize(
    ("asked", "observe", "expected"),
    [
        ("auto", False, ("rounding", "", Choice())),
        ("gpu:1", False, ("gpu", "1", Choice("gpu:1"))),
        ("auto", True, ("gpu", "", Choice(cache="f32"))),
        (Choice("gpu", "q8_0"), True, ("gpu", "", Choice("gpu", "q8_0"))),
        ("plain", True, ("plain", "", Choice("plain"))),
        (Choice(cache="q8_0"), False, ("gpu", "", Choice(cache="q8_0"))),
        (Choice(exact=True), False, ("gpu", "", Choice(exact=True))),
    ],
)
def test_the_first_that_can_is_taken(
    asked: str | Choice, observe: bool, expected: tuple[str, str, Choice]
) -> None:
    open_device(asked, observe=observe)
    assert opened == [expected]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (Choice("plain", "q8_0"), "plain: this device has no KV cache in q8_0; it offers its own"),
        (Choice("gpu", "q4_0"), "gpu: this device has no KV cache in q4_0; it offers f16, q8_0, f"),
        (Choice("auto", "q4_0"), "auto: no device here has a KV cache in q4_0"),
        (Choice("rounding", exact=True), "rounding: this device rounds the inputs of linear"),
        (Choice("abacus"), "abacus: no such device"),
    ],
)
def test_what_cannot_be_had_is_refused(asked: Choice, message: str) -> None:
    with pytest.raises(DeviceError, match=f"^{message}"):
        open_device(asked)
    assert not opened


def test_what_was_opened_early_is_taken_once() -> None:
    wake("gpu:1")
    open_device("gpu:1")
    assert opened == [("gpu", "1", Choice("gpu:1"))]
    open_device("gpu:1")
    assert len(opened) == 2


def test_who_asks_for_more_gets_another() -> None:
    wake("gpu")
    open_device("gpu", observe=True)
    open_device(Choice("gpu", exact=True))
    open_device("gpu")
    assert len(opened) == 3
    assert {choice.cache for _, _, choice in opened} == {None, "f32"}


def test_what_went_wrong_early_is_told_when_it_matters() -> None:
    wake("abacus")
    with pytest.raises(DeviceError, match=r"^abacus: no such device"):
        open_device("abacus")
