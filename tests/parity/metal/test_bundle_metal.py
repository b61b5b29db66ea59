"""A bundle for Apple's systems, played by the app's stand-in, its kernels run by the CPU shim.

What the stand-in knows is the manifest; only the GPU is another than `bundle_player.gpu`.
"""

import ctypes
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
from metal_on_cpu.library import compile_library, missing

from edgequant.device.protocol import Sampling
from edgequant.stages.bundle import bundle
from edgequant.stages.convert import convert
from edgequant.stages.generate import generate
from edgequant.stages.quantize import quantize

pytestmark = [pytest.mark.device, pytest.mark.metal]
PLAYER = Path(__file__).parents[2] / "bundle_player"
PROMPT = "It was late in the evening when the carriage stopped before the house"


class ShimGpu:
    """The player's four verbs over Metal sources on the CPU."""

    def __init__(self) -> None:
        self._kept: list[Any] = []

    def buffer(self, nbytes: int) -> tuple[int, memoryview]:
        whole = (ctypes.c_ubyte * (nbytes + 32))()
        self._kept.append(whole)
        start = -ctypes.addressof(whole) % 16
        content = memoryview(whole).cast("B")[start : start + -(-nbytes // 16) * 16]
        return ctypes.addressof(whole) + start, content

    def pipeline(self, code: bytes, item: dict[str, Any]) -> tuple[Any, str, tuple[int, ...]]:
        library = compile_library(code.decode(), dict(enumerate(item["constants"])))
        return library, item["entry"], tuple(item["threads"])

    def recording(
        self, dispatches: Sequence[tuple[Any, Sequence[int], bytes]], _: Collection[int]
    ) -> Sequence[tuple[Any, Sequence[int], bytes]]:
        return dispatches

    def run(self, recording: Sequence[tuple[Any, Sequence[int], bytes]]) -> None:
        for (library, entry, threads), workgroups, arguments in recording:
            library.dispatch(entry, arguments, tuple(workgroups), threads)


@pytest.mark.slow
def test_its_text_is_that_of_numpy(tmp_path, books_6m, monkeypatch) -> None:
    """A prompt whose matrices are multiplied 8 x 8, then tokens one by one."""
    if (why := missing()) is not None:
        pytest.skip(why)
    convert(str(books_6m), tmp_path / "f16.gguf")
    quantize(tmp_path / "f16.gguf", tmp_path / "q4.gguf", type="Q4_K_M")
    bundle(tmp_path / "q4.gguf", tmp_path / "app", target="ios", context=64)
    manifest = json.loads((tmp_path / "app" / "manifest.json").read_text("utf-8"))
    monkeypatch.syspath_prepend(str(PLAYER))
    from bpe import Words  # type: ignore[import-not-found]
    from player import Player  # type: ignore[import-not-found]

    words = Words(tmp_path / "app", manifest)
    ids = words.encode(PROMPT)
    assert 8 < len(ids) <= 64
    player = Player(tmp_path / "app", manifest, ShimGpu())
    text = "".join(words.feed(token) for token in player.text(ids, 12))
    expected = generate(
        tmp_path / "q4.gguf", PROMPT, device="cpu", limit=12, sampling=Sampling(temperature=0)
    )
    assert text == expected.text
