"""A pretend Mac that runs Metal sources on the CPU, and the Metal host on it."""

from collections.abc import Iterator

import pytest
from metal_on_cpu.library import compile_library, missing
from pretend_metal import PretendMetal
from pretend_metal.declaring import declare

from edgequant.device.metal.device import Metal
from edgequant.device.protocol import Gpu
from edgequant.device.unified import UnifiedGpu
from edgequant.shipped import shipped


@pytest.fixture(scope="session")
def mac() -> PretendMetal:
    if (why := missing()) is not None:
        pytest.skip(why)
    return PretendMetal(compile_library)


@pytest.fixture(scope="session")
def metal(mac: PretendMetal) -> Iterator[Gpu]:
    """The host, open; after all tests nothing of it may be left."""
    opened = UnifiedGpu(Metal(mac, shipped("shaders")))
    declare(opened, mac.declared)
    yield opened
    opened.close()
    assert mac.alive() == []
