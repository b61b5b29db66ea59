"""The null GPU exercises every verb of the seam: planning can be tested without hardware."""

import pytest

from edgequant.device.null import NullGpu
from edgequant.device.protocol import Gpu, Place
from edgequant.errors import DeviceError
from edgequant.graph.launch import Arguments, Dispatch, Limits, Span

LIMITS = Limits(32, 256, 32768, 64, cooperative_matrix=None, integer_dot=False)


def test_every_verb() -> None:
    null = NullGpu(LIMITS)
    gpu: Gpu = null
    copied: list[int] = []
    first, second = gpu.adopt([memoryview(bytes(range(60))), memoryview(b"\x40abc")], copied.append)
    assert copied == [60, 4]
    assert gpu.read(second, 2) == b"\x40a"
    buffer = gpu.alloc(16)
    gpu.write(buffer, b"abc", 1)
    assert gpu.read(buffer, 4, 1) == b"abc\0"
    assert gpu.memory() is None
    null.free_bytes = 100
    assert gpu.memory() == (100, 100)
    assert gpu.peek(gpu.alloc(4, Place.READBACK), 2, 1) == b"\0\0"
    assert len({gpu.address(b) for b in (first, second, buffer)}) == 3
    assert null.locate(gpu.address(second) + 3) == (second, 3)
    dispatch = Dispatch("add", (), b"", (1, 1, 1), (Span(buffer, 0, 8),), (Span(buffer, 8, 8),))
    gpu.prepare([("add", (1, 2))])
    assert null.prepared == [("add", (1, 2))]
    recording = gpu.record([dispatch, dispatch])
    assert list(gpu.wait(gpu.submit(recording))) == []
    timed = gpu.record([dispatch, dispatch], timed=True)
    assert list(gpu.wait(gpu.submit(timed))) == [0.0, 0.0]
    assert null.submitted == [(dispatch, dispatch)] * 2
    gpu.discard(recording)
    gpu.free(first)
    with pytest.raises(KeyError):
        gpu.free(first)
    gpu.close()
    assert not null.live


def test_too_large_a_buffer_says_both_numbers() -> None:
    with pytest.raises(DeviceError, match=r"65 bytes.*limit is 64"):
        NullGpu(LIMITS).alloc(65)


def test_barriers_follow_from_spans() -> None:
    def touching(reads: tuple[Span, ...], writes: tuple[Span, ...]) -> Dispatch:
        return Dispatch("k", (), b"", (1, 1, 1), reads, writes)

    write = touching((), (Span(0, 0, 8),))
    read = touching((Span(0, 4, 8),), (Span(1, 0, 4),))
    beside = touching((Span(0, 8, 8),), (Span(2, 0, 4),))
    assert read.depends_on(write)
    assert not beside.depends_on(write)
    assert write.depends_on(read)  # write after read
    assert not read.depends_on(beside)  # two reads


def test_arguments_are_pointers_then_scalars() -> None:
    made = Arguments("MatvecArgs", (("w", "uint"), ("y", "float")), (("rows", "uint"),))
    assert made.slang() == (
        "struct MatvecArgs\n{\n    uint* w;\n    float* y;\n    uint rows;\n};\n"
    )
    assert made.pack(rows=7) == b"\7\0\0\0"
    with pytest.raises(ValueError, match="not its scalars"):
        made.pack(columns=7)
