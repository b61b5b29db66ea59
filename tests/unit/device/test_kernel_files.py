"""What compiled kernels say of themselves, and what every target is assumed to have."""

import pytest

from edgequant.device.kernel_files import METAL, SPIRV, minds_subgroups, read_metal, read_spirv
from edgequant.device.targets import TARGETS, VULKAN_FEATURES, find_target
from edgequant.device.vulkan import structs as vk
from edgequant.device.vulkan.hardware import REQUIRED
from edgequant.errors import DeviceError, UnsupportedError
from edgequant.shipped import shipped

SHADERS = shipped("shaders")
MODULES = sorted((SHADERS / "generated" / "spirv").glob("*.spv"))
KNOWN = {name for bits in vk.FEATURES.values() for name in bits}


def test_every_module_says_its_entry_and_needs_known_features() -> None:
    assert len(MODULES) > 100
    for path in MODULES:
        file = read_spirv(path)
        assert file.entry == "main"
        assert file.features <= KNOWN, path.name
        threads = file.threads([64] * 16)
        assert all(1 <= axis <= 1024 for axis in threads)
        assert threads[0] > 1
    integers = read_spirv(SHADERS / "generated" / "spirv" / "matvec_i8_q4_k.spv")
    assert "shaderIntegerDotProduct" in integers.features
    matrices = read_spirv(SHADERS / "generated" / "spirv" / "matmul_q4_k_16x128.spv")
    assert {"cooperativeMatrix", "vulkanMemoryModel"} <= matrices.features
    assert matrices.threads(()) == (256, 1, 1)
    sums = read_spirv(SHADERS / "generated" / "spirv" / "rms_norm.spv")
    assert "arithmetic" in sums.subgroup_operations
    assert sums.threads((96, 1, 2)) == (96, 1, 1)


def test_workgroups_of_whole_subgroups_are_asked_only_of_kernels_that_mind() -> None:
    minding = set()
    for path in MODULES:
        file = read_spirv(path)
        assert minds_subgroups(path.read_bytes()) == file.minds_subgroups, path.name
        if file.minds_subgroups:
            minding.add(path.stem.split("_")[0])
            lanes = 8 if path.stem.endswith("_8x16") else 32  # these are for 8 lanes alone
            assert file.threads([32] * 16)[0] % lanes == 0, path.name  # else Vulkan forbids it
    assert "matvec" in minding
    assert not minds_subgroups((SHADERS / "generated/spirv/matmul_tiled_q4_k.spv").read_bytes())


@pytest.mark.parametrize(
    ("line", "threads"),
    [("// entry add, threads 64 2 1", (64, 2, 1)), ("// entry add, threads constant 1", (7, 1, 1))],
)
def test_a_metal_source_says_it_in_its_first_line(tmp_path, line, threads) -> None:
    path = tmp_path / "add.metal"
    path.write_text(f"{line}\n#include <metal_stdlib>\n")
    file = read_metal(path)
    assert (file.entry, file.threads((5, 7))) == ("add", threads)


def test_a_kernel_that_is_not_there_is_named(tmp_path) -> None:
    with pytest.raises(DeviceError, match=r"^warp: there is no warp.metal among the kernels"):
        METAL.find(tmp_path, "warp")
    assert SPIRV.find(SHADERS, "add").path.name == "add.spv"


def test_targets_assume_what_the_host_requires() -> None:
    assert REQUIRED | {"subgroupSizeControl", "computeFullSubgroups"} >= VULKAN_FEATURES
    for target in TARGETS.values():
        limits = target.limits
        assert limits.workgroup % limits.subgroup == 0
        assert limits.integer_dot is (target.language is SPIRV)
    needed = TARGETS["linux"].needed([read_spirv(path) for path in MODULES])
    assert needed["extensions"] == ["VK_KHR_cooperative_matrix"]
    assert needed["subgroup_operations"] == ["arithmetic", "basic", "shuffle"]
    assert TARGETS["android"].needed([])["features"] == sorted(VULKAN_FEATURES)
    assert TARGETS["ios"].needed([])["system"] == "iOS 16"


def test_an_unknown_target_is_answered_with_those_there_are() -> None:
    with pytest.raises(UnsupportedError, match=r"^symbian: not a target") as caught:
        find_target("symbian")
    assert caught.value.hint == "use one of ios, android, macos, linux."
