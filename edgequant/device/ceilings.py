"""How fast a GPU reads memory and multiplies, measured with kernels that do nothing else."""

import time
from collections.abc import Callable

from edgequant.device.bind import bind
from edgequant.device.protocol import Ceilings, Gpu
from edgequant.graph.kernels import multiply_peak, read_memory
from edgequant.graph.launch import Dispatch, Kind, Launch, Span

WORKGROUPS = (264, 1056, 4224)  # some of which suit any GPU
ENOUGH = 2e-3  # seconds, that the clock's grain does not show
PASSES = 4  # over memory in one run
MOST_ROUNDS = 1 << 16
WARM = 0.2  # seconds of multiplying until a GPU's clock has risen


def measure_ceilings(gpu: Gpu, memory: Span, spare: Span) -> Ceilings:
    """Measure a GPU.

    Args:
        gpu: with nothing else to do.
        memory: to read: as much as the kernels of interest read, or what caches hold shows.
        spare: 4 bytes that may be written.

    Raises:
        DeviceError: it has no clock.
    """

    def dispatch(launch: Launch) -> Dispatch:
        spans = {Kind.INPUT: memory, Kind.OUTPUT: spare}
        return bind(launch, lambda operand: spans[operand.kind], gpu.address)

    def read(workgroups: int) -> float:
        (launch,) = read_memory.launches(memory.nbytes, workgroups)
        seconds = _time(gpu, [dispatch(launch)] * PASSES)
        return memory.nbytes / min(seconds)

    def multiply(workgroups: int) -> float:
        rounds = 16
        while True:
            (launch,), operations = multiply_peak.launches(gpu.limits, workgroups, rounds)
            seconds = min(_time(gpu, [dispatch(launch)] * 2))
            if seconds >= ENOUGH or rounds >= MOST_ROUNDS:
                return operations / seconds
            rounds *= 4

    end = time.perf_counter() + WARM
    while time.perf_counter() < end:
        multiply(WORKGROUPS[-1])
    return Ceilings(_best(read), _best(multiply))


def _best(rate: Callable[[int], float]) -> float:
    return max(rate(workgroups) for workgroups in WORKGROUPS)


def _time(gpu: Gpu, dispatches: list[Dispatch]) -> list[float]:
    recording = gpu.record(dispatches, timed=True)
    gpu.wait(gpu.submit(recording))
    seconds = [max(taken, 1e-9) for taken in gpu.wait(gpu.submit(recording))]
    gpu.discard(recording)
    return seconds
