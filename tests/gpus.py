"""The GPUs that tests may ask for, as parameters of the fixture `gpu`."""

import pytest

from edgequant.device.vulkan.hardware import found

VULKAN = [pytest.param(i, id=device.name) for i, device in enumerate(found() or ())] or [
    pytest.param(None, id="no Vulkan")
]
METAL = pytest.param("metal", id="Metal", marks=pytest.mark.metal)
EVERY_GPU = [*VULKAN, METAL]
# For what Metal has no kernels for.
ON_VULKAN = pytest.mark.parametrize("gpu", VULKAN, indirect=True, scope="session")
