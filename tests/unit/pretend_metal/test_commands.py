"""Pretend command buffers and encoders: what may be encoded, when, and with which memory."""

import pytest
from pretend_metal import Refused

from edgequant.device.metal import objc

BARRIER = "memoryBarrierWithScope:"


@pytest.fixture
def x(mac):
    return mac.buffer()


@pytest.fixture
def y(mac):
    return mac.buffer()


@pytest.fixture
def encoder(mac, x, y):
    opened = mac.encoder(mac.commands(), x, y)
    yield opened
    mac.send(opened, "endEncoding")


def test_kernels_run_when_waited_for_with_addresses_of_the_cpu(mac, kernels, x, y):
    commands = mac.run(x, y)
    assert kernels.ran == []
    mac.send(commands, "waitUntilCompleted")
    ((entry, arguments),) = kernels.ran
    starts = [mac.send(buffer, "contents").to_bytes(8, "little") for buffer in (x, y)]
    assert (entry, arguments) == ("twice", b"".join(starts) + bytes(8))
    assert mac.send(commands, "status") == 4
    assert mac.send(commands, "error") is None
    assert mac.send(commands, "GPUEndTime") >= mac.send(commands, "GPUStartTime") > 0


def test_waiting_runs_what_was_committed_before_and_not_after(mac, kernels, x, y):
    first, second, third = (mac.run(x, y) for _ in range(3))
    mac.send(second, "waitUntilCompleted")
    assert len(kernels.ran) == 2
    assert [mac.send(commands, "status") for commands in (first, third)] == [4, 2]
    mac.send(third, "waitUntilCompleted")


def test_dispatches_between_barriers_run_in_another_order(mac, kernels, x, y):
    commands = mac.commands()
    encoder = mac.encoder(commands, x, y)
    for at in range(4):
        mac.dispatch(encoder, mac.pipeline(), mac.arguments(x, y, count=at))
        if at == 1:
            mac.send(encoder, BARRIER, objc.BARRIER_SCOPE_BUFFERS)
    mac.send(encoder, "endEncoding")
    mac.send(commands, "commit")
    mac.send(commands, "waitUntilCompleted")
    assert [arguments[-8] for _, arguments in kernels.ran] == [1, 0, 3, 2]


def test_a_serial_encoder_keeps_order(mac, kernels, x, y):
    commands = mac.commands()
    encoder = mac.encoder(commands, x, y, kind=0)
    for at in range(3):
        mac.dispatch(encoder, mac.pipeline(), mac.arguments(x, y, count=at))
    with pytest.raises(Refused, match="a barrier in a serial encoder"):
        mac.send(encoder, BARRIER, objc.BARRIER_SCOPE_BUFFERS)
    mac.send(encoder, "endEncoding")
    mac.send(commands, "commit")
    mac.send(commands, "waitUntilCompleted")
    assert [arguments[-8] for _, arguments in kernels.ran] == [0, 1, 2]


@pytest.mark.parametrize(
    ("groups", "threads"),
    [
        ((0, 1, 1), (32, 1, 1)),
        ((1, 1, 0), (32, 1, 1)),
        ((1, 1, 1), (0, 1, 1)),
        ((1, 1, 1), (1025, 1, 1)),
        ((1, 1, 1), (32, 33, 1)),
    ],
)
def test_grids_are_not_empty_and_threadgroups_not_too_large(mac, encoder, x, y, groups, threads):
    with pytest.raises(Refused, match="threadgroup"):
        mac.dispatch(encoder, mac.pipeline(), mac.arguments(x, y), groups, threads)


def test_a_dispatch_needs_a_pipeline_and_arguments(mac, encoder, x, y):
    with pytest.raises(Refused, match="without a pipeline"):
        mac.dispatch(encoder, None, mac.arguments(x, y))
    other = mac.encoder(mac.commands(), x, y)
    with pytest.raises(Refused, match="without arguments"):
        mac.dispatch(other, mac.pipeline(), None)
    mac.send(other, "endEncoding")


def test_arguments_are_set_at_0_and_of_no_more_than_4_kib(mac, encoder):
    selector = "setBytes:length:atIndex:"
    mac.send(encoder, selector, bytes(4096), 4096, 0)
    for length, index in ((4097, 0), (0, 0), (8, 1)):
        with pytest.raises(Refused, match="bytes are set"):
            mac.send(encoder, selector, bytes(4097), length, index)
    with pytest.raises(Refused, match="is no pipeline"):
        mac.send(encoder, "setComputePipelineState:", mac.queue)


@pytest.mark.parametrize(
    "offset", [-1, 64, 1 << 20, -(1 << 20)], ids=["before", "at the end", "far", "far before"]
)
def test_addresses_lie_in_buffers(mac, encoder, x, y, offset):
    with pytest.raises(Refused, match=r"twice: argument 0: .* is in no buffer"):
        mac.dispatch(encoder, mac.pipeline(), mac.arguments(x, y, offset))


def test_addresses_of_the_cpu_are_no_addresses_of_kernels(mac, encoder, x):
    start = mac.send(x, "contents").to_bytes(8, "little")
    with pytest.raises(Refused, match="is in no buffer"):
        mac.dispatch(encoder, mac.pipeline(), 2 * start + bytes(8))


@pytest.mark.parametrize("nbytes", [8, 20, 32])
def test_arguments_are_the_whole_struct_with_its_padding(mac, encoder, nbytes):
    with pytest.raises(Refused, match=f"twice: {nbytes} bytes of arguments, not 24"):
        mac.dispatch(encoder, mac.pipeline(), bytes(nbytes))


def test_resources_are_declared(mac, encoder, x):
    other = mac.buffer()
    with pytest.raises(Refused, match=r"argument 1 is in Buffer .*, not declared"):
        mac.dispatch(encoder, mac.pipeline(), mac.arguments(x, other))


@pytest.mark.parametrize(("count", "usage"), [(0, 3), (1, 0), (1, 4)])
def test_usage_is_reading_writing_or_both(mac, encoder, x, count, usage):
    array = mac.array(x)
    with pytest.raises(Refused, match="resources with usage"):
        mac.send(encoder, "useResources:count:usage:", array, count, usage)


def test_resources_are_buffers(mac):
    commands = mac.commands()
    encoder = mac.encoder(commands)
    with pytest.raises(Refused, match="is no resource"):
        mac.send(encoder, "useResources:count:usage:", mac.array(mac.queue), 1, 1)
    mac.send(encoder, "endEncoding")


def test_barriers_are_of_buffers(mac, encoder):
    with pytest.raises(Refused, match="scope 2"):
        mac.send(encoder, BARRIER, 2)


def test_what_was_committed_is_finished(mac, x, y):
    commands = mac.run(x, y)
    with pytest.raises(Refused, match="was committed twice"):
        mac.send(commands, "commit")
    with pytest.raises(Refused, match="nothing more can be encoded"):
        mac.encoder(commands)
    mac.send(commands, "waitUntilCompleted")


def test_encoders_are_open_one_at_a_time_until_they_end(mac, x, y):
    commands = mac.commands()
    encoder = mac.encoder(commands, x, y)
    with pytest.raises(Refused, match="no dispatch type"):
        mac.encoder(mac.commands(), kind=2)
    with pytest.raises(Refused, match="has an encoder that has not ended"):
        mac.encoder(commands)
    with pytest.raises(Refused, match="before its encoder ended"):
        mac.send(commands, "commit")
    mac.dispatch(encoder, mac.pipeline(), mac.arguments(x, y))
    mac.send(encoder, "endEncoding")
    for selector, arguments in (
        ("endEncoding", ()),
        ("setComputePipelineState:", (mac.pipeline(),)),
        ("setBytes:length:atIndex:", (bytes(8), 8, 0)),
        ("useResources:count:usage:", (mac.array(x), 1, 1)),
        (BARRIER, (1,)),
        ("dispatchThreadgroups:threadsPerThreadgroup:", (objc.Size(1, 1, 1),) * 2),
    ):
        with pytest.raises(Refused, match="has ended"):
            mac.send(encoder, selector, *arguments)


def test_an_encoder_is_not_dropped(mac):
    pool = mac.runtime.push_pool()
    mac.encoder(mac.commands())
    with pytest.raises(Refused, match="released before endEncoding"):
        mac.runtime.pop_pool(pool)


def test_waiting_for_what_was_not_committed_is_refused(mac):
    with pytest.raises(Refused, match="was not committed"):
        mac.send(mac.commands(), "waitUntilCompleted")


def test_what_a_command_buffer_uses_outlives_it(mac, x, y):
    commands = mac.run(x, y)
    with pytest.raises(Refused, match="released while a command buffer that uses it may run"):
        mac.send(x, "release")
    with pytest.raises(Refused, match="released with command buffers"):
        mac.send(mac.queue, "release")
    mac.send(commands, "waitUntilCompleted")
    mac.send(y, "release")


def test_what_was_released_before_the_commit_is_noticed(mac, x, y):
    commands = mac.commands()
    encoder = mac.encoder(commands, x, y)
    mac.dispatch(encoder, mac.pipeline(), mac.arguments(x, y))
    mac.send(encoder, "endEncoding")
    mac.send(x, "release")
    with pytest.raises(Refused, match=r"was committed, but Buffer .* was released"):
        mac.send(commands, "commit")


def test_a_queue_has_64_command_buffers_at_most(mac, kernels, x, y):
    for _ in range(65):
        mac.run(x, y)
    assert len(kernels.ran) == 1, "one ran, so that there was room"


def test_a_queue_waits_forever_for_what_nobody_commits(mac):
    kept = [mac.commands() for _ in range(64)]
    with pytest.raises(Refused, match="none committed"):
        mac.commands()
    assert len(set(kept)) == 64


def test_a_command_buffer_can_fail(mac, kernels, x, y):
    mac.runtime.fail_next(8, "Insufficient Memory", after=1)
    good, bad = mac.run(x, y), mac.run(x, y)
    mac.send(bad, "waitUntilCompleted")
    assert [mac.send(commands, "status") for commands in (good, bad)] == [4, 5]
    error = mac.send(bad, "error")
    assert mac.send(error, "code") == 8
    assert mac.send.text(mac.send(error, "localizedDescription")) == "Insufficient Memory"
    assert len(kernels.ran) == 1


def test_what_a_kernel_does_wrong_is_told_to_who_waits(mac, kernels, x, y, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(type(kernels), "dispatch", fail)
    commands = mac.run(x, y)
    with pytest.raises(ZeroDivisionError):
        mac.send(commands, "waitUntilCompleted")
