"""Tests of kernels run on every GPU, and are watched by the validation layers, each by itself."""

import pytest

from edgequant.device.protocol import Gpu
from edgequant.device.vulkan.device import VulkanGpu


@pytest.fixture(autouse=True)
def _watched(gpu: Gpu, request: pytest.FixtureRequest) -> None:
    """Fail a test whose dispatches the layers complain of."""
    if isinstance(gpu, VulkanGpu):
        request.getfixturevalue("quiet")
