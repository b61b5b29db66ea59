"""The Metal host, on a Mac or on a pretend one that runs Metal sources on the CPU."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from mac import open_mac
from metal_on_cpu.library import compile_library, missing
from pretend_metal import PretendMetal
from pretend_metal.declaring import declare

from edgequant.device.metal.device import Metal
from edgequant.device.protocol import Gpu
from edgequant.device.unified import UnifiedGpu
from edgequant.shipped import shipped
from edgequant.stages.convert import convert
from edgequant.stages.quantize import quantize


@pytest.fixture(scope="session")
def mac() -> PretendMetal:
    if (why := missing()) is not None:
        pytest.skip(why)
    return PretendMetal(compile_library)


@pytest.fixture(scope="session")
def metal(request: pytest.FixtureRequest) -> Iterator[Gpu]:
    """The host, open: on a Mac's GPU, or on the pretend one, of which nothing may be left."""
    if (real := open_mac()) is not None:
        yield real
        real.close()
        return
    mac: PretendMetal = request.getfixturevalue("mac")
    opened = UnifiedGpu(Metal(mac, shipped("shaders")))
    declare(opened, mac.declared)
    yield opened
    opened.close()
    assert mac.alive() == []


@pytest.fixture(scope="session")
def path(tmp_path_factory: pytest.TempPathFactory, books_6m: Path) -> Path:
    """The bundled model in Q4_K_M."""
    folder = tmp_path_factory.mktemp("metal")
    convert(str(books_6m), folder / "f16.gguf")
    quantize(folder / "f16.gguf", folder / "q4_k_m.gguf", type="Q4_K_M")
    return folder / "q4_k_m.gguf"
