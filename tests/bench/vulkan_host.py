"""What the Vulkan host costs: opening, recording, submitting, waiting, loading weights.

    python tests/bench/vulkan_host.py [--index N] [--gib G] [--folder F]

Needs a Vulkan device. The table at the end says, in microseconds, what a recording of 300 dependent
dispatches costs the host and the device, and in GB/s how fast a mapped file reaches the device.
"""

import argparse
import mmap
import statistics
import struct
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

from edgequant.device.protocol import Place
from edgequant.device.vulkan import transfer
from edgequant.device.vulkan.api import load
from edgequant.device.vulkan.device import VulkanGpu, open_gpu
from edgequant.device.vulkan.hardware import (
    Hardware,
    create_instance,
    enumerate_devices,
    found,
)
from edgequant.errors import DeviceError
from edgequant.graph.launch import Dispatch, Span

COLUMNS = 1024
NBYTES = 4 * COLUMNS


def add(gpu: VulkanGpu, a: int, b: int, out: int) -> Dispatch:
    """Return the dispatch out = a + b."""
    spans = [Span(buffer, 0, NBYTES) for buffer in (a, b, out)]
    arguments = struct.pack("<QQQI", *(gpu.address(buffer) for buffer in (a, b, out)), COLUMNS)
    return Dispatch("add", (), arguments, (1, 1, 1), tuple(spans[:2]), (spans[2],))


def microseconds(action: object, times: int = 200) -> float:
    """Return the median time of a call."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        action()
        taken.append(time.perf_counter() - start)
    return 1e6 * statistics.median(taken)


def recordings(gpu: VulkanGpu, rows: list[tuple[str, float, str]]) -> None:
    """Time recordings of 300 dispatches."""
    a, b, c = (gpu.alloc(NBYTES) for _ in range(3))
    outs = [gpu.alloc(NBYTES) for _ in range(300)]
    step = gpu.alloc(64, Place.UPLOAD)
    for name, dispatches in (
        ("dependent", [add(gpu, a, b, c), add(gpu, c, b, a)] * 150),
        ("independent", [add(gpu, a, a, out) for out in outs]),
    ):
        start = time.perf_counter()
        recording = gpu.record(dispatches)
        rows.append((f"record {len(dispatches)} {name}", 1e6 * (time.perf_counter() - start), "us"))
        gpu.wait(gpu.submit(recording))
        rows.append(
            (
                f"submit and wait, {name}",
                microseconds(lambda r=recording: gpu.wait(gpu.submit(r))),
                "us",
            )
        )
        taken = []
        for _ in range(100):
            start = time.perf_counter()
            ticket = gpu.submit(recording)
            taken.append(time.perf_counter() - start)
            gpu.wait(ticket)
        rows.append((f"submit alone, {name}", 1e6 * statistics.median(taken), "us"))
        timed = gpu.record(dispatches, timed=True)
        gpu.wait(gpu.submit(timed))
        seconds = gpu.wait(gpu.submit(timed))
        rows.append((f"on the device, {name}", 1e6 * sum(seconds), "us"))
        start = time.perf_counter()
        tickets = [gpu.submit(recording) for _ in range(50)]
        gpu.wait(tickets[-1])
        rows.append((f"50 in flight, each, {name}", 1e6 * (time.perf_counter() - start) / 50, "us"))
    rows.append(("write 48 bytes, UPLOAD", microseconds(lambda: gpu.write(step, bytes(48))), "us"))
    rows.append(("write 48 bytes, DEVICE", microseconds(lambda: gpu.write(a, bytes(48))), "us"))
    rows.append(("read 48 bytes, DEVICE", microseconds(lambda: gpu.read(a, 48)), "us"))


def loading(gpu: VulkanGpu, gib: float, folder: Path, rows: list[tuple[str, float, str]]) -> None:
    """Time the adoption of a mapped file that the system has cached."""
    nbytes = int(gib * 2**30)
    piece = np.random.default_rng(1).integers(0, 256, 64 << 20, dtype=np.uint8).tobytes()
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        for start in range(0, nbytes, len(piece)):
            file.write(piece[: nbytes - start])
        file.flush()
        for mib, stages in ((16, 4), (16, 8), (16, 12), (4, 8)):
            transfer.STAGING, transfer.STAGES = mib << 20, stages
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                view = memoryview(mapped)
                most = 1 << 30
                ranges = [view[s : s + most] for s in range(0, nbytes, most)]
                start = time.perf_counter()
                buffers = gpu.adopt(ranges, lambda n: None)
                seconds = time.perf_counter() - start
                tail = gpu.read(buffers[-1], 4096, len(ranges[-1]) - 4096)
                right = tail == bytes(ranges[-1][-4096:])
                for buffer in buffers:
                    gpu.free(buffer)
                for part in ranges:
                    part.release()
                view.release()
            way = "in place" if gpu.in_place else f"{stages} x {mib} MiB"
            way += "" if right else " WRONG"
            rows.append((f"adopt, {way}", nbytes / seconds / 1e9, "GB/s"))


def found_step_by_step(rows: list[tuple[str, float, str]]) -> tuple[Hardware, ...]:
    """Find the devices as `found` does, and time its steps; then once more as a whole."""
    times = [time.perf_counter()]
    library = load()
    times.append(time.perf_counter())
    assert library is not None, "no Vulkan library"
    instance = create_instance(library)
    times.append(time.perf_counter())
    devices = enumerate_devices(library.functions(instance), instance)
    times.append(time.perf_counter())
    found()
    times.append(time.perf_counter())
    names = ("load the library", "create an instance", "describe devices", "all of it, again")
    steps = zip(names, pairwise(times), strict=True)
    rows += [(name, 1e3 * (after - before), "ms") for name, (before, after) in steps]
    return devices


def exhaust(gpu: VulkanGpu) -> str:
    """Allocate until the device refuses, and return what is said then."""
    if gpu.hardware.computes_on_cpu:
        return "its memory is this machine's: not exhausted"
    buffers = []
    nbytes = min(gpu.limits.max_alloc_bytes, 2 << 30)
    try:
        for _ in range(200):
            buffers += [gpu.alloc(nbytes)]
    except DeviceError as error:
        return str(error)
    finally:
        for buffer in buffers:
            gpu.free(buffer)
    return f"{len(buffers)} buffers of {nbytes:,} bytes fit"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--index", default="")
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--folder", type=Path, default=None)
    told = parser.parse_args()
    rows: list[tuple[str, float, str]] = []
    devices = found_step_by_step(rows)
    start = time.perf_counter()
    gpu = open_gpu(told.index)
    rows.append(("open one", 1e3 * (time.perf_counter() - start), "ms"))
    recordings(gpu, rows)
    loading(gpu, told.gib, told.folder, rows)
    for device in devices:
        print(device)
    print(gpu.description, gpu.memory())
    print(exhaust(gpu))
    gpu.close()
    for name, value, unit in rows:
        print(f"{name:40} {value:12,.1f} {unit}")


main()
