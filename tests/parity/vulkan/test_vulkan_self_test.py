"""The self-test on this machine: right kernels pass, one that is not what it says does not."""

import shutil
from dataclasses import replace

import pytest
import typed

from edgequant.device import self_test as module
from edgequant.device.self_test import ALLOWED, SelfTest, Verdict, passed
from edgequant.device.vulkan.device import VulkanGpu, notes_of
from edgequant.shipped import shipped

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("quiet")]
SPIRV = shipped("shaders") / "generated" / "spirv"


def test_right_kernels_pass(gpu, tmp_path):
    notes = tmp_path / "notes.json"
    self_test = SelfTest(gpu, "vulkan", notes)
    verdicts = list(self_test.examine(["F16", "Q4_0", "Q6_K", "TQ1_0"]))
    assert all(verdict.passed for verdict in verdicts)
    assert [verdict.error is None for verdict in verdicts] == [False, False, False, True]
    assert passed(notes) == {"F16", "Q4_0", "Q6_K"}
    self_test.ensure({"F16", "Q4_0"})


@pytest.mark.parametrize("name", ["Q4_K", "Q6_K"])
def test_what_decoding_does_in_integers_is_tried_too(gpu, name, monkeypatch):
    monkeypatch.setattr(gpu, "limits", replace(gpu.limits, integer_dot=True))

    def between() -> list[float]:
        return [error for case, error in module._cases(gpu, name) if "between two norms" in case]

    assert max(between()) < 5e-4
    # Kernels that divide by another root than NumPy.
    monkeypatch.setattr(module, "NORMED", replace(module.NORMED, before=0.1))
    assert min(between()) > ALLOWED


def test_a_wrong_kernel_is_found_and_is_another_device_to_the_notes(gpu, watched, tmp_path):
    shaders = tmp_path / "spirv"
    shutil.copytree(SPIRV, shaders)
    for path in shaders.glob("mat*_iq4_nl*.spv"):  # of the same blocks, with other values
        shutil.copy(path, path.with_name(path.name.replace("iq4_nl", "q4_0")))
    wrong = VulkanGpu(gpu.hardware, shaders=shaders, cache=tmp_path)
    notes = notes_of(gpu.hardware, shaders, tmp_path)
    assert notes.name != notes_of(gpu.hardware).name
    (verdict,) = SelfTest(wrong, "vulkan", notes).examine(["Q4_0"])
    wrong.close()
    assert verdict != Verdict("Q4_0", None)
    assert not verdict.passed
    assert not notes.exists()


def test_the_command_lists_what_passed(gpu, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("edgequant.stages.devices.names", lambda: ("Q8_0", "TQ1_0"))
    result = typed.invoke("devices", "--self-test")
    assert result.exit_code == 0
    assert gpu.hardware.name in result.stdout
    assert "self-test: passed for 1 format (Q8_0); no kernel for TQ1_0" in result.stdout
    listed = {device["hardware"]: device for device in typed.read_json("devices")["devices"]}
    assert listed[gpu.hardware.name]["self_test"]["Q8_0"] == "passed"
