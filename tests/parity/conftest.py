"""The GPU a test asks for: Vulkan devices of this machine, whose layers are heard, or Metal's:
of the Mac it runs on, or on the CPU.

Where kernels are tested (shaders/) it is both, unless a test says otherwise.
"""

from collections.abc import Iterator

import pytest
from gpus import EVERY_GPU, VULKAN
from mac import open_mac
from metal_on_cpu.gpu import MetalOnCpu
from metal_on_cpu.library import missing
from vulkan_layers import Watched

from edgequant.device.protocol import Gpu
from edgequant.device.vulkan.device import VulkanGpu


@pytest.fixture(scope="session")
def watched(request: pytest.FixtureRequest) -> Iterator[Watched]:
    if VULKAN[0].values == (None,):
        pytest.skip("there is no Vulkan device on this machine")  # fails if devices must run
    instance = Watched()
    if not instance.layers and request.config.getoption("--devices-must-run"):
        pytest.fail("Vulkan's validation layers are missing (Debian: vulkan-validationlayers)")
    yield instance
    instance.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    told = any("gpu" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if "gpu" in metafunc.fixturenames and not told:
        gpus = EVERY_GPU if metafunc.definition.path.parent.name == "shaders" else VULKAN
        metafunc.parametrize("gpu", gpus, indirect=True, scope="session")


@pytest.fixture(scope="session")
def gpu(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gpu]:
    if request.param == "metal":
        if (real := open_mac()) is not None:
            yield real
            real.close()
            return
        if (why := missing()) is not None:
            pytest.skip(why)
        yield MetalOnCpu()
        return
    watched = request.getfixturevalue("watched")
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
