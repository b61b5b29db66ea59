"""Buffers of the Metal host: copies, mapped files, and where they end."""

import mmap
import platform

import numpy as np
import pytest
from add_one_kernel import COUNT, add_one, floats, run
from pretend_metal import PretendMetal

from edgequant.device.unified import UnifiedGpu
from edgequant.errors import DeviceError


def test_what_it_says_of_itself(gpu: UnifiedGpu) -> None:
    limits = gpu.limits
    assert gpu.description == f"Pretend M1, {platform.platform(terse=True)}, Metal 3"
    assert (limits.subgroup, limits.workgroup, limits.shared_bytes) == (32, 1024, 32768)
    assert (limits.cooperative_matrix, limits.integer_dot) == ((8, 8, 8), False)
    assert limits.max_alloc_bytes == (4 << 30) - 2 * mmap.PAGESIZE
    gpu.alloc(1000)
    assert gpu.memory() == ((8 << 30) - 1008, 8 << 30)


def test_bytes_come_back(gpu: UnifiedGpu) -> None:
    buffer = gpu.alloc(100)
    assert gpu.read(buffer, 100) == bytes(100)
    gpu.write(buffer, b"abc", 5)
    gpu.write(buffer, memoryview(b"xyz"), 97)
    assert gpu.read(buffer, 5, 4) == b"\0abc\0"
    assert gpu.peek(buffer, 3, 97) == b"xyz"
    gpu.write(gpu.alloc(0), b"")


@pytest.mark.parametrize(("nbytes", "offset"), [(3, 98), (1, -1), (101, 0)])
def test_what_is_outside_a_buffer_is_refused(gpu: UnifiedGpu, nbytes: int, offset: int) -> None:
    buffer = gpu.alloc(100)
    for touch in (
        lambda: gpu.read(buffer, nbytes, offset),
        lambda: gpu.write(buffer, bytes(nbytes), offset),
    ):
        with pytest.raises(ValueError, match="of a buffer of 100"):
            touch()


def test_files_are_read_where_they_are(
    gpu: UnifiedGpu, mac: PretendMetal, mapped: memoryview
) -> None:
    """Two ranges meet in a page, and the last ends in one that the file does not fill."""
    told: list[int] = []
    cut = mmap.PAGESIZE + 64
    ranges = [mapped[32:cut], mapped[cut:]]
    out = gpu.alloc(4 * COUNT)
    mac.sent.clear()
    buffers = gpu.adopt(ranges, told.append)
    assert told == [cut - 32, len(mapped) - cut]
    assert mac.sent["newBufferWithBytesNoCopy:length:options:deallocator:"] == 2
    for buffer, content in zip(buffers, ranges, strict=True):
        assert gpu.address(buffer) % 16 == 0
        end = len(content) - 4 * COUNT
        run(gpu, add_one(gpu, buffer, out, offset=end))
        assert floats(gpu.read(out, 4 * COUNT)) == [f + 1 for f in floats(content[end:])]
    for buffer in buffers:
        gpu.free(buffer)


def test_what_is_of_no_file_is_copied(gpu: UnifiedGpu, mac: PretendMetal) -> None:
    content = np.arange(COUNT, dtype=np.float32)
    mac.sent.clear()
    (buffer,) = gpu.adopt([content.data.cast("B")], lambda _: None)
    assert not mac.sent["newBufferWithBytesNoCopy:length:options:deallocator:"]
    assert floats(gpu.read(buffer, 4 * COUNT)) == [0, 1, 2, 3]


def test_what_does_not_fit_leaves_nothing(
    gpu: UnifiedGpu, mac: PretendMetal, mapped: memoryview
) -> None:
    page = mmap.PAGESIZE
    before = mac.alive()
    mac.limits.memory, mac.limits.working_set = 3 * page, 2 * page
    with pytest.raises(DeviceError) as caught:
        gpu.adopt([mapped[:page], mapped[page:]], lambda _: None)
    assert caught.value.what == (
        f"metal: no memory for {len(mapped) - page:,} bytes on Pretend M1, where {page:,} of "
        f"{2 * page:,} bytes of the working set are free, and where a buffer has "
        f"{gpu.limits.max_alloc_bytes:,} at most."
    )
    assert mac.alive() == before
    with pytest.raises(DeviceError, match="no memory for 4,294,967,296 bytes"):
        gpu.alloc(4 << 30)
