"""Recordings on the Metal host: order, barriers, times, and nothing left behind."""

from add_one_kernel import COUNT, AddOne, add_one, floats, run
from pretend_metal import PretendMetal

from edgequant.device.unified import UnifiedGpu


def test_dispatches_run_in_order_where_they_depend(gpu: UnifiedGpu) -> None:
    """What no barrier separates runs last to first here."""
    x, y, z, other = (gpu.alloc(4 * COUNT) for _ in range(4))
    dispatches = add_one(gpu, x, y), add_one(gpu, x, other), add_one(gpu, y, z)
    recording = gpu.record([*dispatches, add_one(gpu, z, x)])
    tickets = [gpu.submit(recording) for _ in range(3)]
    gpu.wait(tickets[0])
    assert floats(gpu.peek(x, 4 * COUNT)) == [3] * COUNT
    gpu.wait(tickets[2])
    assert floats(gpu.peek(x, 4 * COUNT)) == [9] * COUNT
    assert floats(gpu.read(other, 4 * COUNT)) == [7] * COUNT


def test_barriers_and_pipelines_are_sent_where_they_are_needed(
    gpu: UnifiedGpu, mac: PretendMetal, compiler: AddOne
) -> None:
    x, y, z = (gpu.alloc(4 * COUNT) for _ in range(3))
    mac.sent.clear()
    run(
        gpu,
        add_one(gpu, x, y),
        add_one(gpu, x, z),
        add_one(gpu, y, x),
        add_one(gpu, z, y, "scaled"),
    )
    assert mac.sent["dispatchThreadgroups:threadsPerThreadgroup:"] == 4
    assert mac.sent["memoryBarrierWithScope:"] == 2
    assert mac.sent["setComputePipelineState:"] == 2
    assert mac.sent["useResources:count:usage:"] == 1  # nothing is only read
    assert compiler.ran == [(32, 1, 1)] * 4


def test_a_timed_recording_times_each_dispatch(gpu: UnifiedGpu, mac: PretendMetal) -> None:
    x, y = gpu.alloc(4 * COUNT), gpu.alloc(4 * COUNT)
    recording = gpu.record([add_one(gpu, x, y), add_one(gpu, y, x)] * 50, timed=True)
    ticket = gpu.submit(recording)
    assert floats(gpu.read(x, 4 * COUNT)) == [100] * COUNT
    seconds = gpu.wait(ticket)  # waited for before, and still told
    assert len(seconds) == 100
    assert min(seconds) > 0
    assert gpu.wait(ticket) == ()
    assert run(gpu, add_one(gpu, x, y)) == []


def test_nothing_is_left_of_a_token(gpu: UnifiedGpu, mac: PretendMetal) -> None:
    x, y = gpu.alloc(4 * COUNT), gpu.alloc(4 * COUNT)
    recording = gpu.record([add_one(gpu, x, y)])
    gpu.wait(gpu.submit(recording))
    before = mac.alive()
    for _ in range(100):
        gpu.wait(gpu.submit(recording))
    assert mac.alive() == before
