"""Buffers of a program: few, and none larger than the device allows."""

from dataclasses import replace

import pytest
from watching_gpu import LIMITS

from edgequant.device.null import NullGpu
from edgequant.device.resident import Resident


@pytest.mark.parametrize(("most", "buffers"), [(1 << 20, 1), (2048, 3), (1200, 5)])
def test_spans_share_buffers_as_far_as_they_fit(most: int, buffers: int) -> None:
    gpu = NullGpu(replace(LIMITS, max_alloc_bytes=most))
    sizes = [1000, 1000, 700, 1, 900, 300]
    resident = Resident(gpu)
    spans = resident.alloc_together(sizes)
    assert [span.nbytes for span in spans] == sizes
    assert all(span.offset % 256 == 0 for span in spans)
    assert all(span.offset + span.nbytes <= len(gpu.live[span.buffer]) for span in spans)
    assert not any(a.overlaps(b) for i, a in enumerate(spans) for b in spans[:i])
    assert len(gpu.live) == buffers
    resident.close()
    assert not gpu.live


def test_no_spans_take_no_buffer() -> None:
    gpu = NullGpu(LIMITS)
    assert Resident(gpu).alloc_together([]) == []
    assert not gpu.live
