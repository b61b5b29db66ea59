"""The self-test's whole model: NumPy agrees with itself, and what is wrong is named."""

import re
from collections.abc import Iterator

import numpy as np
import pytest

from edgequant.blocks import Floats
from edgequant.device import open_device
from edgequant.device.protocol import Device, Generator, Program, Sampling, Tokens
from edgequant.stages import whole_model
from edgequant.stages.whole_model import PREFILL, try_whole_model


class Wrong:
    """A device that computes like NumPy, but for `fault`, and chooses tokens by `choose`."""

    context = 0

    def __init__(self, fault: str = "") -> None:
        self._fault = fault
        self._cpu = open_device("cpu")

    def load(self, *arguments: object, **options: int) -> Program:
        self._program = self._cpu.load(*arguments, **options)  # type: ignore[arg-type]
        return self

    def run(self, tokens: Tokens, past: int, *, rows: int = 1) -> Floats:
        logits = self._program.run(tokens, past, rows=rows)
        fails = {"prefill": len(tokens) > 1, "decode": len(tokens) == 1 and past >= PREFILL}
        return np.full_like(logits, np.nan) if fails.get(self._fault) else logits

    def generate(self, token: int, past: int, count: int, sampling: Sampling) -> Iterator[int]:
        for index in range(count):
            (logits,) = self._program.run(np.array([token], np.int32), past + index)
            unlikely = self._fault == "choice" and index == 2
            token = int(logits.argmin() if unlikely else logits.argmax())
            yield token

    def close(self) -> None:
        self._program.close()


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("", "None"),
        ("prefill", "prefill: error nan"),
        ("decode", "token 71: error nan"),
        ("choice", r"\d+ was chosen as token 3, not \d+"),
    ],
)
def test_what_is_wrong_is_named(fault: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Wrong(fault)
    assert isinstance(device, Generator)

    def opened(name: str) -> Device:
        return device if name == "odd" else open_device(name)  # type: ignore[return-value]

    monkeypatch.setattr(whole_model, "open_device", opened)
    assert re.fullmatch(told, str(try_whole_model("odd")))
