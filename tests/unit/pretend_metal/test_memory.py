"""Pretend buffers: pages, lengths, addresses."""

import ctypes
import mmap
import sys

import numpy as np
import pytest
from pretend_metal import Limits, PretendMetal, Refused
from pretend_metal.memory import is_mapped

from edgequant.device.metal.objc import Messages

NO_COPY = "newBufferWithBytesNoCopy:length:options:deallocator:"
PAGE = mmap.PAGESIZE


def test_a_new_buffer_is_of_zeros_at_a_page_and_shared(mac):
    buffer = mac.buffer(100)
    start = mac.send(buffer, "contents")
    assert start % PAGE == 0
    assert ctypes.string_at(start, 100) == bytes(100)
    assert mac.send(mac.device, "currentAllocatedSize") == 100


def test_addresses_of_kernels_are_their_own_and_never_used_twice(mac):
    first = mac.buffer()
    address = mac.send(first, "gpuAddress")
    assert address not in (0, mac.send(first, "contents"))
    mac.send(first, "release")
    assert mac.send(mac.buffer(), "gpuAddress") > address


@pytest.mark.parametrize(("nbytes", "options"), [(0, 0), (1 << 20, 0), (64, 32), (64, 256)])
def test_lengths_and_options_are_limited(mac, nbytes, options):
    mac.runtime.limits.buffer = 1 << 19
    with pytest.raises(Refused, match=r"bytes; Metal takes 1 to|resource options"):
        mac.send(mac.device, "newBufferWithLength:options:", nbytes, options)


def test_there_is_no_more_memory_than_there_is(kernels):
    runtime = PretendMetal(kernels, limits=Limits(memory=1000, allocated=500))
    send, device = Messages(runtime), runtime.default_device()
    assert send(device, "newBufferWithLength:options:", 400, 0)
    assert send(device, "newBufferWithLength:options:", 400, 0) is None
    assert send(device, NO_COPY, *_page(), 0, None) is None


def test_mapped_memory_stays_where_it_is(mac):
    start, length = _page()
    buffer = mac.send(mac.device, NO_COPY, start, length, 0, None)
    assert mac.send(buffer, "contents") == start


@pytest.mark.parametrize(("skip", "less"), [(16, 0), (0, 16), (16, 16)])
def test_no_copy_wants_whole_pages(mac, skip, less):
    start, length = _page()
    with pytest.raises(Refused, match="not whole pages"):
        mac.send(mac.device, NO_COPY, start + skip, length - less, 0, None)


def test_no_copy_wants_no_more_than_a_buffer_may_have_and_no_deallocator(mac):
    start, length = _page()
    with pytest.raises(Refused, match="what the host mapped"):
        mac.send(mac.device, NO_COPY, start, length, 0, mac.queue)
    mac.runtime.limits.buffer = length - PAGE
    with pytest.raises(Refused, match="Metal takes 1 to"):
        mac.send(mac.device, NO_COPY, start, length, 0, None)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody says what is mapped")
def test_no_copy_wants_what_is_mapped(mac):
    with pytest.raises(Refused, match="not all mapped"):
        mac.send(mac.device, NO_COPY, PAGE, PAGE, 0, None)


def test_mappings_are_joined():
    maps = "1000-2000 r--p 0\n2000-4000 rw-p 0\n5000-6000 r--p 0\n"
    assert is_mapped(0x1800, 0x2800, lambda: maps)
    assert not is_mapped(0x1800, 0x2801, lambda: maps)
    assert not is_mapped(0x4800, 16, lambda: maps)


_MAPPED = mmap.mmap(-1, 4 * PAGE)


def _page() -> tuple[int, int]:
    return int(np.frombuffer(_MAPPED, np.uint8).ctypes.data), 4 * PAGE
