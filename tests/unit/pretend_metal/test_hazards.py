"""What pretend Metal says of dispatches that depend on each other, once it is told."""

import pytest
from pretend_metal import Refused


@pytest.fixture
def told(mac):
    """Buffers, and a function that declares and encodes a dispatch: reads of one, writes of one."""
    read, written, other = (mac.buffer() for _ in range(3))
    encoder = mac.encoder(mac.commands(), read, written)
    mac.send(encoder, "useResources:count:usage:", mac.array(other), 1, 1)
    pipeline = mac.pipeline()

    def dispatch(x: int, y: int, start: int = 0, nbytes: int = 64) -> None:
        arguments = mac.arguments(x, y, count=256 * start + nbytes)
        ranges = []
        for buffer in (x, y):
            address = mac.send(buffer, "gpuAddress")
            ranges.append([(address + start, address + start + nbytes)])
        mac.runtime.declared.declare(arguments, (1, 1, 1), *ranges)
        mac.dispatch(encoder, pipeline, arguments)

    dispatch.barrier = lambda: mac.send(encoder, "memoryBarrierWithScope:", 1)  # type: ignore[attr-defined]
    yield read, written, other, dispatch
    mac.send(encoder, "endEncoding")


def test_a_write_is_not_seen_without_a_barrier(told):
    read, written, _, dispatch = told
    dispatch(read, written)
    with pytest.raises(Refused, match="twice follows twice on the same bytes"):
        dispatch(written, read)
    dispatch.barrier()
    dispatch(written, read)


def test_two_writes_are_in_no_order_without_a_barrier(told):
    read, written, other, dispatch = told
    dispatch(read, written)
    with pytest.raises(Refused, match="without a barrier"):
        dispatch(other, written)


def test_reading_twice_and_writing_elsewhere_needs_none(told):
    read, written, other, dispatch = told
    dispatch(read, written, 0, 32)
    dispatch(read, written, 32, 32)
    dispatch(other, written, 64 - 64, 0)
    with pytest.raises(Refused, match="without a barrier"):
        dispatch(other, written, 31, 2)


def test_what_is_declared_to_be_read_is_not_written(told):
    read, _, other, dispatch = told
    with pytest.raises(Refused, match=r"writes Buffer .*, which was declared to be read"):
        dispatch(read, other)


def test_nothing_is_written_past_the_end(told):
    read, written, _, dispatch = told
    with pytest.raises(Refused, match="writes past the end"):
        dispatch(read, written, 32, 33)


def test_once_told_it_is_told_all(mac, told):
    read, written, _, dispatch = told
    dispatch(read, written)
    encoder = mac.encoder(mac.commands(), read, written)
    with pytest.raises(Refused, match="nobody recorded"):
        mac.dispatch(encoder, mac.pipeline(), mac.arguments(read, written))
    mac.send(encoder, "endEncoding")
