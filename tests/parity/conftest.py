"""Every Vulkan device of this machine, for every test that asks for `gpu`; its layers are heard."""

from collections.abc import Iterator

import pytest
from vulkan_layers import Watched

from edgequant.device.protocol import Gpu
from edgequant.device.vulkan.device import VulkanGpu
from edgequant.device.vulkan.hardware import found

NUMBERS = [pytest.param(i, id=device.name) for i, device in enumerate(found() or ())]


@pytest.fixture(scope="session")
def watched(request: pytest.FixtureRequest) -> Iterator[Watched]:
    if not NUMBERS:
        pytest.skip("there is no Vulkan device on this machine")
    instance = Watched()
    if not instance.layers and request.config.getoption("--devices-must-run"):
        pytest.fail("Vulkan's validation layers are missing (Debian: vulkan-validationlayers)")
    yield instance
    instance.close()


@pytest.fixture(scope="session", params=NUMBERS or [None])
def gpu(
    request: pytest.FixtureRequest, watched: Watched, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gpu]:
    cache = tmp_path_factory.mktemp("pipelines")
    opened = VulkanGpu(watched.devices[request.param], cache=cache)
    yield opened
    opened.close()
    assert watched.take() == []


@pytest.fixture
def quiet(watched: Watched) -> Iterator[None]:
    """Fail the test if the validation layers say anything while it runs."""
    watched.take()
    yield
    assert watched.take() == []
