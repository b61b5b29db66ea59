"""Command buffers that run on a thread, each for a set time."""

import time

import pytest
from pretend_metal import PretendMetal, Threaded

DELAY = 0.005


@pytest.fixture
def runtime(kernels):
    executor = Threaded(DELAY)
    yield PretendMetal(kernels, executor=executor)
    executor.close()


def test_committing_does_not_wait_and_waiting_does(mac, kernels):
    x, y = mac.buffer(), mac.buffer()
    start = time.perf_counter()
    last = [mac.run(x, y) for _ in range(4)][-1]
    assert mac.send(last, "status") == 2
    mac.send(last, "waitUntilCompleted")
    assert mac.send(last, "status") == 4
    assert time.perf_counter() - start > 4 * DELAY
    assert len(kernels.ran) == mac.runtime.executor.completed == 4


def test_a_full_queue_waits_for_room(mac):
    mac.runtime.executor.delay = 0.0002
    x, y = mac.buffer(), mac.buffer()
    last = [mac.run(x, y) for _ in range(70)][-1]
    mac.send(last, "waitUntilCompleted")
    assert mac.runtime.executor.completed == 70


def test_what_goes_wrong_on_the_thread_is_told_to_who_waits(mac, kernels, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(type(kernels), "dispatch", fail)
    x, y = mac.buffer(), mac.buffer()
    commands = mac.run(x, y)
    with pytest.raises(ZeroDivisionError):
        mac.send(commands, "waitUntilCompleted")
