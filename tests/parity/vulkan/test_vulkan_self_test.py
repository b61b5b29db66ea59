"""The self-test on this machine: right kernels pass, one that is not what it says does not."""

import shutil

import pytest

from edgequant.device.self_test import SelfTest, Verdict
from edgequant.device.vulkan.device import VulkanGpu
from edgequant.shipped import shipped

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("quiet")]
SPIRV = shipped("shaders") / "generated" / "spirv"


def test_right_kernels_pass(gpu, tmp_path):
    self_test = SelfTest(gpu, "vulkan", tmp_path / gpu.notes.name)
    verdicts = self_test.examine(["F16", "Q4_0", "Q6_K", "TQ1_0"])
    assert all(verdict.passed for verdict in verdicts)
    assert [verdict.error is None for verdict in verdicts] == [False, False, False, True]
    assert self_test.passed() == {"F16", "Q4_0", "Q6_K", "TQ1_0"}
    self_test.ensure({"F16", "Q4_0"})


def test_a_wrong_kernel_is_found_and_is_another_device_to_the_notes(gpu, watched, tmp_path):
    shaders = tmp_path / "spirv"
    shutil.copytree(SPIRV, shaders)
    for path in shaders.glob("mat*_iq4_nl*.spv"):  # of the same blocks, with other values
        shutil.copy(path, path.with_name(path.name.replace("iq4_nl", "q4_0")))
    wrong = VulkanGpu(gpu.hardware, shaders=shaders, cache=tmp_path)
    assert wrong.notes.name != gpu.notes.name
    (verdict,) = SelfTest(wrong, "vulkan", wrong.notes).examine(["Q4_0"])
    wrong.close()
    assert verdict != Verdict("Q4_0", None)
    assert not verdict.passed
