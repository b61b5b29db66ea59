"""The Vulkan host on this machine's devices, watched by the validation layers."""

import mmap
import struct

import numpy as np
import pytest

from edgequant.device.protocol import Place
from edgequant.device.vulkan import transfer
from edgequant.device.vulkan.device import VulkanGpu
from edgequant.device.vulkan.structs import BufferCreateInfo
from edgequant.errors import DeviceError
from edgequant.graph.launch import Dispatch, Span

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("quiet")]

COLUMNS = 1500
NBYTES = 4 * COLUMNS


def add(gpu, a, b, out, at=0):
    """Return the dispatch out = a + b, floats from byte `at` of a."""
    addresses = (gpu.address(a) + at, gpu.address(b), gpu.address(out))
    return Dispatch(
        "add",
        (),
        struct.pack("<QQQI", *addresses, COLUMNS),
        (-(-COLUMNS // 1024), 1, 1),
        (Span(a, at, NBYTES), Span(b, 0, NBYTES)),
        (Span(out, 0, NBYTES),),
    )


@pytest.fixture
def buffers(gpu):
    """Return a function that makes buffers of COLUMNS floats; they are freed after the test."""
    made = []

    def make(count, place=Place.DEVICE):
        made.extend(gpu.alloc(NBYTES, place) for _ in range(count))
        return made[-count:]

    yield make
    for buffer in made:
        gpu.free(buffer)


@pytest.fixture
def x(rng):
    return rng.standard_normal(COLUMNS).astype(np.float32)


def floats(gpu, buffer):
    return np.frombuffer(gpu.read(buffer, NBYTES), np.float32)


@pytest.mark.parametrize("place", Place)
def test_buffers_are_zero_and_keep_what_is_written(gpu, buffers, place):
    (buffer,) = buffers(1, place)
    assert gpu.read(buffer, NBYTES) == bytes(NBYTES)
    gpu.write(buffer, memoryview(b"edgequant"), 13)
    gpu.write(buffer, b"")
    assert gpu.read(buffer, 11, 12) == b"\0edgequant\0"
    assert gpu.read(buffer, 0) == b""


def test_addresses_are_aligned_and_apart(gpu, buffers):
    addresses = sorted(gpu.address(b) for p in Place for b in buffers(3, p))
    assert all(address % 16 == 0 for address in addresses)
    assert np.diff(addresses).min() >= NBYTES


@pytest.mark.parametrize("place", [Place.UPLOAD, Place.DEVICE])
def test_dispatches_see_what_earlier_ones_wrote(gpu, buffers, x, place):
    (a,), (b, c) = buffers(1, place), buffers(2)
    (out,) = buffers(1, Place.READBACK)
    gpu.write(a, x.tobytes())
    chain = [add(gpu, a, a, b), add(gpu, b, a, c), add(gpu, c, b, b), add(gpu, b, c, out)]
    recording = gpu.record(chain)
    gpu.wait(gpu.submit(recording))
    want = np.frombuffer(gpu.peek(out, NBYTES), np.float32)
    np.testing.assert_allclose(want, 8 * x, rtol=1e-6)
    assert gpu.peek(out, 8, 8) == want[2:4].tobytes()
    gpu.discard(recording)


def test_a_recording_is_in_flight_many_times_in_order(gpu, buffers):
    a, b = buffers(2)
    gpu.write(a, np.ones(COLUMNS, np.float32).tobytes())
    recording = gpu.record([add(gpu, b, a, b)])
    tickets = [gpu.submit(recording) for _ in range(40)]
    assert tickets == sorted(set(tickets))
    for ticket in (tickets[10], tickets[39], tickets[0]):
        assert len(gpu.wait(ticket)) == 0
    assert (floats(gpu, b) == 40).all()
    gpu.discard(recording)


def test_writes_come_after_what_was_submitted_before(gpu, buffers):
    (a, step), (b,) = buffers(2, Place.UPLOAD), buffers(1)
    recording = gpu.record([add(gpu, b, a, b), add(gpu, b, step, b)])
    for number in range(1, 4):
        for buffer in (a, step):
            gpu.write(buffer, np.full(COLUMNS, number, np.float32).tobytes())
        gpu.submit(recording)
    assert (floats(gpu, b) == 2 * (1 + 2 + 3)).all()
    gpu.discard(recording)


def test_a_timed_recording_says_how_long_each_dispatch_took(gpu, buffers):
    a, b, c = buffers(3)
    recording = gpu.record([add(gpu, a, a, b), add(gpu, a, a, c), add(gpu, b, c, a)], timed=True)
    seconds = gpu.wait(gpu.submit(recording))
    assert len(seconds) == 3
    assert all(0 <= s < 1 for s in seconds)
    assert sum(seconds) > 0
    gpu.discard(recording)


@pytest.mark.parametrize("in_place", [True, False])
def test_mapped_files_are_read_by_kernels(gpu, buffers, rng, tmp_path, monkeypatch, in_place):
    monkeypatch.setattr(transfer, "STAGING", 1 << 16)  # so that every staging buffer is used twice
    monkeypatch.setattr(gpu, "in_place", in_place and gpu.in_place)
    content = rng.standard_normal(300_000).astype(np.float32)
    (tmp_path / "weights").write_bytes(content.tobytes() + b"end")
    with (
        (tmp_path / "weights").open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as view,
        view[96:900_000] as first,
        view[900_000:] as second,
        view[:0] as empty,
    ):
        copied: list[int] = []
        weights = gpu.adopt([first, second, empty], copied.append)
        assert sum(copied) == len(first) + len(second)
        a, out = buffers(2)
        recording = gpu.record([add(gpu, weights[0], a, out, at=16)])
        gpu.wait(gpu.submit(recording))
        assert (floats(gpu, out) == content[28 : 28 + COLUMNS]).all()
        assert gpu.read(weights[0], len(first)) == bytes(first)
        assert gpu.read(weights[1], 103, len(second) - 103) == bytes(second[-103:])
        gpu.discard(recording)
        for buffer in weights:
            gpu.free(buffer)


def test_compiled_kernels_are_kept_and_damage_does_no_harm(gpu, tmp_path, x):
    for harm in (b"", b"damaged", b""):
        again = VulkanGpu(gpu.hardware, cache=tmp_path)
        a, b = again.alloc(NBYTES), again.alloc(NBYTES)
        again.write(a, x.tobytes())
        again.wait(again.submit(again.record([add(again, a, a, b)])))
        assert (floats(again, b) == 2 * x).all()
        again.close()
        (file,) = tmp_path.iterdir()
        file.write_bytes(file.read_bytes() + harm)


def test_a_buffer_above_the_limit_is_refused(gpu):
    with pytest.raises(DeviceError, match="bytes was asked for"):
        gpu.alloc(gpu.limits.max_alloc_bytes + 1)


def test_free_memory_is_known_where_the_driver_tells(gpu):
    known = gpu.memory()
    assert (known is None) == ("VK_EXT_memory_budget" not in gpu.hardware.extensions)
    if known is not None:
        assert 0 < known[0] <= known[1]


def test_limits_are_plausible(gpu):
    limits = gpu.limits
    assert limits.subgroup in (4, 8, 16, 32, 64, 128)
    assert limits.workgroup >= 128
    assert limits.shared_bytes >= 16384
    assert limits.max_alloc_bytes >= 1 << 30
    assert gpu.hardware.name in gpu.description
    assert len(gpu.hardware.uuid) == 32


def test_the_layers_are_heard(gpu, watched):
    if not watched.layers:
        pytest.skip("Vulkan's validation layers are not installed")
    empty = BufferCreateInfo(nbytes=0, usage=1)
    gpu._logical.destroy("Buffer", gpu._logical.create("Buffer", empty))
    (said,) = watched.take()
    assert "VkBufferCreateInfo-size-00912" in said
