"""Every Vulkan device of this machine, for every test that asks for `gpu`."""

from collections.abc import Iterator

import pytest

from edgequant.device.protocol import Gpu
from edgequant.device.vulkan.device import VulkanGpu
from edgequant.device.vulkan.hardware import found


def _devices() -> list[object]:
    return [pytest.param(hardware, id=hardware.name) for hardware in found() or ()]


@pytest.fixture(scope="session", params=_devices() or [None])
def gpu(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gpu]:
    if request.param is None:
        pytest.skip("there is no Vulkan device on this machine")
    opened = VulkanGpu(request.param, cache=tmp_path_factory.mktemp("pipelines"))
    yield opened
    opened.close()
