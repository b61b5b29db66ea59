"""The Vulkan host when something goes wrong, and its barriers, without a driver."""

import dataclasses
import hashlib

import pytest
from fake_vulkan import FakeDevice, hardware
from hypothesis import given
from hypothesis import strategies as st

from edgequant.device.barriers import Touched, barriers
from edgequant.device.kept import cache_folder
from edgequant.device.protocol import Place
from edgequant.device.vulkan.device import VulkanGpu
from edgequant.errors import DeviceError
from edgequant.graph.launch import Dispatch, Span


@pytest.fixture
def opened(tmp_path):
    """Return a function that opens a described device; what it made must be gone when closed."""
    gpus = []

    def open_(device: FakeDevice | None = None, **changes: object):
        found, fake = hardware(device)
        (tmp_path / "add.spv").write_bytes(b"\0" * 20)
        found = dataclasses.replace(found, **changes)
        gpu = VulkanGpu(found, shaders=tmp_path, cache=tmp_path / "cache")
        gpus.append((gpu, fake))
        return gpu, fake

    yield open_
    for gpu, fake in gpus:
        gpu.close()
        assert fake.live == {}


def dispatch(reads=(), writes=(), arguments=b"\0" * 16, workgroups=(1, 1, 1), kernel="add"):
    return Dispatch(kernel, (4,), arguments, workgroups, tuple(reads), tuple(writes))


def test_memory_that_runs_out_is_told_with_the_sizes(opened):
    gpu, fake = opened()
    kept = gpu.alloc(100)
    fake.faults["vkAllocateMemory"] = -2
    with pytest.raises(DeviceError) as caught:
        gpu.alloc(1 << 20)
    assert caught.value.what == (
        "vulkan: no memory for 1,048,576 bytes on Fake 9000, which has 4,294,967,296 of "
        "8,589,934,592 bytes free."
    )
    assert gpu.memory() == (4 << 30, 8 << 30)
    del fake.faults["vkAllocateMemory"]
    gpu.free(kept)


def test_memory_that_runs_out_where_nobody_knows_how_much_is_free(opened):
    gpu, fake = opened(FakeDevice(extensions=()))
    fake.faults["vkAllocateMemory"] = -1
    with pytest.raises(DeviceError, match=r"on Fake 9000, which has 8,589,934,592 bytes\."):
        gpu.alloc(16)
    assert gpu.memory() is None


def test_another_failure_to_allocate_is_no_lack_of_memory(opened):
    gpu, fake = opened()
    fake.faults["vkAllocateMemory"] = -10
    with pytest.raises(DeviceError, match=r"too many objects .* while allocating 16 bytes"):
        gpu.alloc(16)


def test_a_buffer_above_the_limit_is_not_tried(opened):
    gpu, fake = opened()
    with pytest.raises(
        DeviceError, match="2,147,483,649 bytes was asked for; Fake 9000 allows 2,147,483,648"
    ):
        gpu.alloc((2 << 30) + 1)
    assert "vkAllocateMemory" not in fake.calls


def test_weights_that_do_not_fit_leave_nothing_behind(opened):
    gpu, fake = opened()
    before = dict(fake.live)
    content = memoryview(bytes(1000))
    fake.faults["vkQueueSubmit"] = -4
    with pytest.raises(DeviceError, match="the device was lost"):
        gpu.adopt([content, content], lambda nbytes: None)
    assert fake.live == before


@pytest.mark.parametrize("made", range(4))
def test_no_memory_in_the_middle_of_copying_leaves_nothing_behind(opened, made):
    gpu, fake = opened()
    before = dict(fake.live)
    fake.faults["vkAllocateMemory"] = [0] * made + [-2] * 40
    with pytest.raises(DeviceError, match="no memory for"):
        gpu.adopt([memoryview(bytes(1000))] * 5, lambda nbytes: None)
    assert fake.live == before


def test_copying_ends_when_nobody_waits_for_it(opened):
    gpu, fake = opened()
    before = dict(fake.live)
    copied: list[int] = []

    def progress(nbytes: int) -> None:
        copied.append(nbytes)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gpu.adopt([memoryview(b"x")] * 1000, progress)
    assert fake.live == before
    assert len(copied) < 100


@pytest.mark.parametrize("step", ["vkGetMemoryHostPointerPropertiesEXT", "vkAllocateMemory"])
def test_a_mapping_the_driver_refuses_is_copied(opened, step):
    gpu, fake = opened(FakeDevice(kind=1))
    fake.faults[step] = [-1000072003]
    copied: list[int] = []
    (buffer,) = gpu.adopt([memoryview(bytes(1000))], copied.append)
    assert sum(copied) == 1000
    assert "vkCmdCopyBuffer" in fake.calls
    gpu.free(buffer)


@pytest.mark.parametrize(
    ("place", "kind"), [(Place.DEVICE, 0), (Place.UPLOAD, 2), (Place.READBACK, 3)]
)
def test_each_place_has_its_memory(opened, place, kind):
    gpu, fake = opened()
    buffer = gpu.alloc(16, place)
    assert f"Memory of type {kind}" in fake.live.values()
    gpu.free(buffer)


def test_a_device_lost_while_waiting_is_told_and_can_be_closed(opened):
    gpu, fake = opened()
    ticket = gpu.submit(gpu.record([dispatch()]))
    for name in ("vkWaitSemaphores", "vkDeviceWaitIdle", "vkGetPipelineCacheData"):
        fake.faults[name] = -4
    with pytest.raises(DeviceError, match="the device was lost while waiting"):
        gpu.wait(ticket)


def test_a_device_lost_while_submitting_is_told(opened):
    gpu, fake = opened()
    recording = gpu.record([dispatch()])
    fake.faults["vkQueueSubmit"] = -4
    with pytest.raises(DeviceError, match="the device was lost while submitting"):
        gpu.submit(recording)


def test_waiting_goes_on_after_a_timeout(opened):
    gpu, fake = opened()
    ticket = gpu.submit(gpu.record([dispatch()]))
    fake.faults["vkWaitSemaphores"] = [2, 2]
    gpu.wait(ticket)
    gpu.wait(ticket)  # known to be done: not asked again
    assert fake.calls.count("vkWaitSemaphores") == 3


def test_a_kernel_that_does_not_compile_is_named(opened):
    gpu, fake = opened()
    fake.faults["vkCreateComputePipelines"] = -1000012000
    with pytest.raises(DeviceError) as caught:
        gpu.record([dispatch()])
    assert caught.value.what == (
        "vulkan: kernel add [4] does not compile on Fake 9000 (fake, 1.2.3): "
        "invalid shader (-1000012000)."
    )


def test_a_kernel_that_is_not_there_is_named(opened):
    with pytest.raises(DeviceError, match="there is no kernel subtract"):
        opened()[0].record([dispatch(kernel="subtract")])


def test_kernels_prepared_are_not_compiled_again(opened):
    gpu, fake = opened()
    made = dispatch()
    gpu.prepare([(made.kernel, made.constants)] * 2)
    gpu.record([made])
    assert fake.calls.count("vkCreateComputePipelines") == 1


def test_what_does_not_compile_ahead_is_told_when_it_is_recorded(opened):
    gpu, _ = opened()
    gpu.prepare([("subtract", ())])
    gpu.prepare([("subtract", ())])
    gpu.record([dispatch()])
    with pytest.raises(DeviceError, match="there is no kernel subtract"):
        gpu.record([dispatch(kernel="subtract")])
    gpu.prepare([("subtract", ())])  # closing does not mind


def test_arguments_that_are_too_long_are_refused(opened):
    with pytest.raises(DeviceError, match="add receives 132 bytes; Fake 9000 passes 128 at most"):
        opened()[0].record([dispatch(arguments=bytes(132))])


@pytest.mark.parametrize("workgroups", [(65536, 1, 1), (1, 65536, 1), (0, 1, 1)])
def test_a_grid_that_cannot_be_launched_is_a_bug(opened, workgroups):
    with pytest.raises(ValueError, match=r"add: .* workgroups"):
        opened()[0].record([dispatch(workgroups=workgroups)])


def test_times_need_timestamps(opened):
    gpu, _ = opened(FakeDevice(families=((3, 0),)))
    with pytest.raises(DeviceError, match="Fake 9000 has no timestamps"):
        gpu.record([dispatch()], timed=True)


def test_times_are_differences_of_timestamps(opened):
    gpu, _ = opened()
    ticket = gpu.submit(gpu.record([dispatch(), dispatch()], timed=True))
    assert gpu.wait(ticket) == pytest.approx([2e-6, 6e-6])  # 1000 and 3000 ticks of 2 ns


def test_a_kernel_is_compiled_once(opened):
    gpu, fake = opened()
    gpu.discard(gpu.record([dispatch(), dispatch()]))
    gpu.record([dispatch()])
    assert fake.calls.count("vkCreateComputePipelines") == 1


def test_reads_and_writes_stay_inside(opened):
    gpu, _ = opened()
    buffer = gpu.alloc(16, Place.UPLOAD)
    gpu.write(buffer, b"abcd", 12)
    assert gpu.read(buffer, 6, 10) == b"\0\0abcd"
    for offset, nbytes in ((13, 4), (-1, 4), (17, 0)):
        with pytest.raises(ValueError, match="of a buffer of 16"):
            gpu.write(buffer, bytes(nbytes), offset)


def test_compiled_kernels_are_kept_and_damage_is_ignored(tmp_path):
    def run() -> bytes:
        found, fake = hardware()
        VulkanGpu(found, shaders=tmp_path, cache=tmp_path).close()
        return fake.calls.count("vkGetPipelineCacheData")

    assert run() == 2  # asked for the size, then for the content
    (file,) = tmp_path.iterdir()
    assert file.read_bytes() == hashlib.sha256(b"0123456789").digest() + b"0123456789"
    assert run() == 1  # it has not grown
    file.write_bytes(file.read_bytes()[:-1])
    assert run() == 2
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    assert file.read_bytes().endswith(b"0123456789")


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path):
    (tmp_path / "file").touch()
    found, fake = hardware()
    VulkanGpu(found, shaders=tmp_path, cache=tmp_path / "file").close()
    assert fake.live == {}


@pytest.mark.parametrize(
    ("platform", "variable", "folder"),
    [
        ("linux", "XDG_CACHE_HOME", "edgequant"),
        ("win32", "LOCALAPPDATA", "edgequant"),
        ("linux", "HOME", ".cache/edgequant"),
        ("darwin", "HOME", "Library/Caches/edgequant"),
    ],
)
def test_the_cache_is_where_the_system_keeps_caches(
    monkeypatch, tmp_path, platform, variable, folder
):
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setattr("sys.platform", platform)
    assert cache_folder() == tmp_path / folder


SPANS = st.builds(Span, st.integers(1, 2), st.integers(0, 20), st.integers(1, 8))


@given(st.lists(SPANS, max_size=12), SPANS)
def test_touched_bytes_are_found(spans, asked):
    touched = Touched()
    for span in spans:
        touched.add([span])
    assert touched.meets([asked]) == any(span.overlaps(asked) for span in spans)


@given(st.lists(st.tuples(st.lists(SPANS, max_size=2), st.lists(SPANS, max_size=2)), max_size=8))
def test_barriers_stand_where_one_dispatch_depends_on_another_and_nowhere_else(pairs):
    dispatches = [dispatch(reads, writes) for reads, writes in pairs]
    since: list[Dispatch] = []
    for one, barrier in zip(dispatches, barriers(dispatches), strict=True):
        assert barrier == any(one.depends_on(earlier) for earlier in since)
        since = [one] if barrier else [*since, one]


def test_barriers_take_time_in_proportion():
    many = [dispatch(writes=[Span(1, 16 * i, 16)]) for i in range(20_000)]
    assert not any(barriers(many))  # minutes, were each compared with all before
