"""The null GPU exercises every verb of the seam: planning can be tested without hardware."""

import pytest

from edgequant.device.null import NullGpu
from edgequant.device.protocol import Gpu
from edgequant.errors import DeviceError
from edgequant.graph.launch import Dispatch, Launch, Limits, Span

LIMITS = Limits(32, 256, 32768, 64, cooperative_matrix=False, integer_dot=False)


def test_every_verb() -> None:
    null = NullGpu(LIMITS)
    gpu: Gpu = null
    chunks = gpu.adopt(memoryview(bytes(range(100))))
    assert [len(gpu.read(b)) for b in chunks] == [64, 36]
    assert gpu.read(chunks[1])[0] == 64
    buffer = gpu.alloc(16)
    gpu.write(buffer, memoryview(b"abc"))
    assert bytes(gpu.read(buffer)[:4]) == b"abc\0"
    assert gpu.pipeline("matvec_q4_k") == gpu.pipeline("matvec_q4_k") != gpu.pipeline("add")
    dispatch = Dispatch(Launch("add", b"", (1, 1, 1)), (Span(buffer, 0, 8),), (Span(buffer, 8, 8),))
    recording = gpu.record([dispatch, dispatch])
    assert list(gpu.wait(gpu.submit(recording))) == [0.0, 0.0]
    gpu.submit(recording)
    assert null.submitted == [(dispatch, dispatch)] * 2


def test_too_large_a_buffer_says_both_numbers() -> None:
    with pytest.raises(DeviceError, match=r"65 bytes.*limit is 64"):
        NullGpu(LIMITS).alloc(65)


def test_barriers_follow_from_spans() -> None:
    launch = Launch("k", b"", (1, 1, 1))
    write = Dispatch(launch, (), (Span(0, 0, 8),))
    read = Dispatch(launch, (Span(0, 4, 8),), (Span(1, 0, 4),))
    beside = Dispatch(launch, (Span(0, 8, 8),), (Span(2, 0, 4),))
    assert read.depends_on(write)
    assert not beside.depends_on(write)
    assert write.depends_on(read)  # write after read
    assert not read.depends_on(beside)  # two reads
