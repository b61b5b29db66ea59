"""What the Metal host says when the GPU or a kernel fails."""

import re
from pathlib import Path

import pytest
from add_one_kernel import ADD_ONE, COUNT, AddOne, add_one
from pretend_metal import PretendMetal
from tiny_model import write_model

from edgequant.device.gpu import GpuDevice
from edgequant.device.metal.device import Metal
from edgequant.device.metal.objc import SELECTORS
from edgequant.device.unified import UnifiedGpu
from edgequant.errors import DeviceError
from edgequant.graph.launch import Dispatch
from edgequant.runtime.model import open_model


def test_out_of_memory_while_running(gpu: UnifiedGpu, mac: PretendMetal) -> None:
    x, y = gpu.alloc(4 * COUNT), gpu.alloc(4 * COUNT)
    recording = gpu.record([add_one(gpu, x, y)])
    mac.fail_next(8, "Insufficient Memory (IOGPUCommandBufferCallbackErrorOutOfMemory)", after=1)
    tickets = [gpu.submit(recording) for _ in range(3)]
    gpu.wait(tickets[0])
    with pytest.raises(DeviceError) as caught:
        gpu.wait(tickets[2])
    assert caught.value.what.startswith("metal: out of memory on Pretend M1, where 8,589,934,5")
    assert "of 8,589,934,592 bytes of the working set are free: Insufficient" in caught.value.what
    assert "--ctx" in caught.value.hint
    gpu.wait(tickets[2])


def test_a_gpu_that_stops(gpu: UnifiedGpu, mac: PretendMetal) -> None:
    x, y = gpu.alloc(4 * COUNT), gpu.alloc(4 * COUNT)
    recording = gpu.record([add_one(gpu, x, y)] * 2, timed=True)
    mac.fail_next(2, "Caused GPU Timeout Error")
    gpu.submit(recording)
    with pytest.raises(
        DeviceError, match="metal: Pretend M1 stopped with error 2: Caused GPU Timeout Error"
    ):
        gpu.read(y, 4)


def test_it_closes_while_something_fails(mac: PretendMetal, shaders: Path) -> None:
    gpu = UnifiedGpu(Metal(mac, shaders))
    x, y = gpu.alloc(4 * COUNT), gpu.alloc(4 * COUNT)
    mac.fail_next(2, "Caused GPU Timeout Error")
    gpu.submit(gpu.record([add_one(gpu, x, y)]))
    gpu.close()
    assert mac.alive() == []


def test_a_kernel_that_does_not_compile(gpu: UnifiedGpu, compiler: AddOne) -> None:
    x, y = gpu.alloc(4 * COUNT), gpu.alloc(4 * COUNT)
    compiler.broken = (
        "Compilation failed: \n\nprogram_source:3:66: error: use of undeclared identifier 'oops'\n"
        "    oops\n    ^\n"
    )
    gpu.prepare([("add_one", ())])  # does not tell
    with pytest.raises(DeviceError) as caught:
        gpu.record([add_one(gpu, x, y)])
    assert caught.value.what == (
        "metal: kernel add_one does not compile on Pretend M1: use of undeclared identifier "
        "'oops', in line 3: " + ADD_ONE.splitlines()[2]
    )
    compiler.broken = "Compiler encountered an internal error"
    with pytest.raises(DeviceError, match="on Pretend M1: Compiler encountered an internal error"):
        gpu.record([add_one(gpu, x, y)])


@pytest.mark.parametrize(("threads", "simd"), [(16, 32), (1024, 16)])
def test_a_kernel_that_cannot_run_as_it_is_meant(
    gpu: UnifiedGpu, mac: PretendMetal, threads: int, simd: int
) -> None:
    x, y = gpu.alloc(4 * COUNT), gpu.alloc(4 * COUNT)
    mac.limits.threads, mac.limits.simd = threads, simd
    with pytest.raises(
        DeviceError,
        match=f"runs at most {threads} threads of kernel scaled, {simd} at a time; 32 are wanted",
    ):
        gpu.record([add_one(gpu, x, y, "scaled")])


def test_a_kernel_that_is_not_there(gpu: UnifiedGpu) -> None:
    with pytest.raises(DeviceError, match=r"there is no nothing\.metal"):
        gpu.record([Dispatch("nothing", (), b"", (1, 1, 1), (), ())])


def test_a_model_that_does_not_fit_the_working_set(
    mac: PretendMetal, gpu: UnifiedGpu, tmp_path: Path
) -> None:
    """Files take no memory of their own, but the system counts them when kernels read them."""
    path = write_model(tmp_path / "model.gguf")
    mac.limits.working_set = path.stat().st_size // 2
    with pytest.raises(DeviceError) as caught:
        open_model(path, GpuDevice("metal", gpu), context=32)
    told = re.fullmatch(
        r"metal: ([\d,]+) bytes of weights, .* are wanted; the device has ([\d,]+) free, of (.*)\.",
        caught.value.what,
    )
    assert told is not None
    weights, free, total = (int(number.replace(",", "")) for number in told.groups())
    assert weights > total == mac.limits.working_set > free


def test_every_message_is_sent_sooner_or_later(
    mac: PretendMetal, shaders: Path, mapped: memoryview
) -> None:
    gpu = UnifiedGpu(Metal(mac, shaders))
    (x,), y = gpu.adopt([mapped], lambda _: None), gpu.alloc(4 * COUNT)
    gpu.memory()
    recording = gpu.record([add_one(gpu, x, y, "scaled"), add_one(gpu, y, y, "scaled")])
    mac.fail_next(2, "Caused GPU Timeout Error")
    with pytest.raises(DeviceError):
        gpu.wait(gpu.submit(recording))
    gpu.close()
    assert set(mac.sent) == set(SELECTORS)
