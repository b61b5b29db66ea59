"""What the Vulkan host reads out of devices, on devices that are described and not there."""

import threading
import time

import pytest
from fake_vulkan import EVERYTHING, FakeDevice, FakeVulkan, hardware

from edgequant import device
from edgequant.device import vulkan
from edgequant.device.vulkan import api
from edgequant.device.vulkan import hardware as module
from edgequant.device.vulkan.api import Functions, check
from edgequant.device.vulkan.device import VulkanGpu, open_gpu
from edgequant.device.vulkan.hardware import REQUIRED, enumerate_devices
from edgequant.errors import DeviceError

CPU = FakeDevice("Software", kind=4)
INTEGRATED = FakeDevice("Built in", kind=1)


@pytest.fixture
def machine(monkeypatch):
    """Return a function that puts devices into this machine."""
    module._start.cache_clear()

    def put(*devices: FakeDevice, **faults: int) -> FakeVulkan:
        fake = FakeVulkan(devices, faults=faults)
        monkeypatch.setattr(module, "load", lambda: fake)
        return fake

    yield put
    module._start.cache_clear()


def test_hardware_comes_before_drivers_that_compute_on_the_cpu():
    fake = FakeVulkan((CPU, INTEGRATED, FakeDevice("First"), FakeDevice("Second")))
    names = [found.name for found in enumerate_devices(fake, 1)]
    assert names == ["First", "Second", "Built in", "Software"]


def test_limits_are_what_the_device_says():
    found, _ = hardware()
    assert found.limits.subgroup == 32
    assert found.limits.workgroup == 1024
    assert found.limits.shared_bytes == 49152
    assert found.limits.max_alloc_bytes == 2 << 30  # the smaller of a buffer and an allocation
    assert found.limits.cooperative_matrix == (16, 8, 16)
    assert found.limits.integer_dot
    assert found.uuid == bytes(range(16)).hex()
    assert found.driver == "fake, 1.2.3"
    assert found.family == 1  # computes, and does not draw
    assert found.memory_bytes == 8 << 30
    assert found.lacking == ()


@pytest.mark.parametrize(
    ("listed", "chosen"),
    [
        (((8, 8, 8), (16, 16, 16), (16, 8, 16)), (16, 16, 16)),
        (((8, 8, 8),), (8, 8, 8)),
        (((64, 64, 64),), None),  # a shape no kernel of ours has
        ((), None),
    ],
)
def test_the_best_matrix_shape_is_chosen(listed, chosen):
    assert hardware(FakeDevice(matrices=listed))[0].limits.cooperative_matrix == chosen


@pytest.mark.parametrize("lost", ["cooperativeMatrix", "shaderIntegerDotProduct"])
def test_what_is_not_there_is_not_used(lost):
    found, _ = hardware(FakeDevice(features=EVERYTHING - {lost}))
    assert found.lacking == ()
    assert (found.limits.cooperative_matrix is None) == (lost == "cooperativeMatrix")
    assert found.limits.integer_dot == (lost == "cooperativeMatrix")


@pytest.mark.parametrize("features", [EVERYTHING, REQUIRED])
@pytest.mark.parametrize(
    "extensions", [FakeDevice().extensions, ("VK_EXT_memory_budget", "VK_odd")]
)
def test_only_what_is_there_is_asked_for(tmp_path, features, extensions):
    features -= {"cooperativeMatrix"} if "VK_odd" in extensions else set()
    found, fake = hardware(FakeDevice(features=features, extensions=extensions))
    VulkanGpu(found, cache=tmp_path).close()
    assert fake.asked == features | set(extensions) - {"VK_odd"}


@pytest.mark.parametrize(
    ("subgroups", "lanes", "workgroup"),
    [((64, 32, 64), 32, 1024), ((8, 8, 8), 8, 512), ((128, 64, 128), 128, 1024)],
)
def test_subgroups_have_32_lanes_where_there_is_a_choice(subgroups, lanes, workgroup):
    found, _ = hardware(FakeDevice(subgroups=subgroups))
    assert (found.limits.subgroup, found.limits.workgroup) == (lanes, workgroup)
    assert found.full_subgroups


def test_subgroups_are_taken_as_they_come_where_none_can_be_asked_for():
    found, _ = hardware(
        FakeDevice(subgroups=(8, 8, 32), features=EVERYTHING - {"computeFullSubgroups"})
    )
    assert (found.limits.subgroup, found.limits.workgroup) == (8, 1024)
    assert not found.full_subgroups


@pytest.mark.parametrize("name", sorted(REQUIRED))
def test_a_device_without_what_we_need_is_refused_by_name(name):
    found, _ = hardware(FakeDevice(features=EVERYTHING - {name}))
    with pytest.raises(DeviceError, match=rf"Fake 9000 lacks {name}\."):
        VulkanGpu(found)


@pytest.mark.parametrize(
    ("families", "chosen", "tick"),
    [
        (((1, 64), (3, 64), (2, 64)), 2, 2.0),
        (((3, 64), (2, 0)), 0, 2.0),  # without timestamps nothing could be profiled
        (((1, 64), (2, 0)), 1, 0.0),
    ],
)
def test_a_queue_that_only_computes_is_taken_if_it_has_timestamps(families, chosen, tick):
    found, _ = hardware(FakeDevice(families=families))
    assert (found.family, found.timestamp_ns) == (chosen, tick)


def test_an_old_device_and_one_that_only_draws_are_refused():
    assert hardware(FakeDevice(api=(1, 2)))[0].lacking == ("Vulkan 1.3",)
    assert hardware(FakeDevice(families=((1, 0),)))[0].lacking == ("a queue that computes",)


def test_mapped_files_stay_where_they_are_if_memory_is_one():
    assert hardware(INTEGRATED)[0].adopts_in_place
    assert hardware(CPU)[0].adopts_in_place
    assert not hardware(FakeDevice())[0].adopts_in_place
    assert not hardware(FakeDevice(kind=1, extensions=()))[0].adopts_in_place


def test_why_vulkan_is_missing(machine, monkeypatch):
    monkeypatch.setattr(module, "load", lambda: None)
    assert vulkan.DEVICE.missing() == "no Vulkan library is installed (Debian: libvulkan1)."
    with pytest.raises(DeviceError, match="vulkan: no Vulkan library is installed"):
        device.open_device("vulkan")


@pytest.mark.parametrize(
    ("devices", "faults", "reason"),
    [
        ((), {}, "no Vulkan driver finds a device."),
        ((), {"vkCreateInstance": -9}, "no Vulkan driver finds a device."),
        ((), {"vkCreateInstance": -3}, "vulkan: initialization failed (-3) while starting Vulkan."),
        ((FakeDevice(api=(1, 2)),), {}, "Fake 9000 lacks Vulkan 1.3."),
        ((FakeDevice(api=(1, 2)), FakeDevice()), {}, None),
    ],
)
def test_why_no_device_is_found(machine, devices, faults, reason):
    machine(*devices, **faults)
    assert vulkan.DEVICE.missing() == reason


@pytest.mark.parametrize(
    ("devices", "taken"),
    [((CPU,), False), ((CPU, INTEGRATED), True), ((CPU, FakeDevice(api=(1, 2))), False)],
)
def test_auto_wants_hardware(machine, devices, taken):
    machine(*devices)
    assert vulkan.DEVICE.worthwhile() == taken


def test_devices_are_opened_by_number(machine, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    machine(CPU, FakeDevice("Old", api=(1, 2)), INTEGRATED)
    for index, name in (("", "Built in"), ("1", "Built in"), ("2", "Software")):
        gpu = open_gpu(index)
        assert gpu.hardware.name == name
        gpu.close()
    with pytest.raises(DeviceError, match=r"Old lacks Vulkan 1\.3"):
        open_gpu("0")
    for index in ("3", "-1", "x"):
        with pytest.raises(DeviceError, match=f"vulkan:{index}: no such device; vulkan:0 is Old"):
            open_gpu(index)


def test_results_are_told_in_words():
    check(0, "resting")
    check(5, "resting")  # not an error: there is more
    with pytest.raises(DeviceError, match="the device was lost while resting"):
        check(-4, "resting")
    with pytest.raises(DeviceError, match=r"out of host memory \(-1\) while resting"):
        check(-1, "resting")
    with pytest.raises(DeviceError, match=r"an unknown error \(-77\) while resting"):
        check(-77, "resting")


def test_a_function_the_driver_lacks_is_named():
    with pytest.raises(DeviceError, match="the driver has no vkCreateBuffer"):
        Functions(lambda name: None).vkCreateBuffer(1)


def test_no_library_under_any_name(monkeypatch):
    monkeypatch.setattr(api, "LIBRARIES", ("libnothing-of-that-name.so",))
    assert api.load() is None


@pytest.mark.parametrize(("platform", "flags"), [("darwin", 1), ("linux", 0)])
def test_drivers_on_top_of_metal_are_asked_for_where_they_may_be(monkeypatch, platform, flags):
    monkeypatch.setattr("sys.platform", platform)
    fake = FakeVulkan((FakeDevice(),))
    module.create_instance(fake)
    assert fake.instance_flags == flags
    assert ("vkEnumerateInstanceExtensionProperties" in fake.calls) == (platform == "darwin")


def test_drivers_start_once_although_two_ask(monkeypatch):
    loads = []

    def load() -> FakeVulkan:
        time.sleep(0.05)  # until the other asks, too
        loads.append(1)
        return FakeVulkan((FakeDevice(),))

    module._start.cache_clear()
    monkeypatch.setattr(module, "load", load)
    before = set(threading.enumerate())
    threading.Thread(target=module.found).start()
    assert [found.name for found in module.found() or ()] == ["Fake 9000"]
    for thread in set(threading.enumerate()) - before:
        thread.join()
    assert loads == [1]
    module._start.cache_clear()
