"""Measure norms, copies and sampling on a GPU, in microseconds.

    python tests/bench/gpu_small.py [--device INDEX] [--quick]

Every figure is the time of one of many launches that wait for each other, as in a step: that of a
submission of 65 of them, less that of one, over 64. An "add" of 4 columns shows what waiting alone
costs. Logits are normal with a deviation of 3, or as said; sampling is two launches. NumPy only.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from run_op import Memory, step_record

from edgequant.blocks import BLOCK_TYPES
from edgequant.device.bind import bind
from edgequant.device.protocol import Gpu, Sampling
from edgequant.device.vulkan.device import open_gpu
from edgequant.graph.kernels import elementwise, matmul, matvec, observe, rms_norm, rows, sample
from edgequant.graph.launch import Call, Kind, Launch, Operand, Span

TIMES = 64
F16, F32 = BLOCK_TYPES["F16"], BLOCK_TYPES["F32"]
SAMPLINGS = {
    "greedy": Sampling(temperature=0),
    "default": Sampling(),
    "top_p 0.95 alone": Sampling(top_k=0, min_p=0),
    "top_k 1000": Sampling(top_k=1000, top_p=1, min_p=0),
    "min_p 0.05 alone": Sampling(top_k=0, top_p=1),
    "nothing left out": Sampling(top_k=0, top_p=1, min_p=0),
}


def seconds(gpu: Gpu, launches: Sequence[Launch], memory: Memory, quick: bool) -> float:
    """Return what one of many takes."""

    def resolve(operand: Operand) -> Span:
        name = (operand.kind, operand.index, operand.tag)
        if operand.kind in (Kind.SCRATCH, Kind.DERIVED):
            return memory.poison(name, operand.nbytes)
        return memory[name]

    dispatches = [bind(launch, resolve, gpu.address) for launch in launches]
    best = []
    for times in (1, 1 + TIMES):
        recording = gpu.record(dispatches * times)
        taken = []
        for _ in range(2 if quick else 20):
            began = time.perf_counter()
            gpu.wait(gpu.submit(recording))
            taken.append(time.perf_counter() - began)
        best.append(min(taken))
        gpu.discard(recording)
    return (best[1] - best[0]) / TIMES


def held(gpu: Gpu, inputs: Sequence[np.ndarray], output: int, columns: int, step: bytes) -> Memory:
    """Return memory with inputs, an output of so many bytes, a vector of ones, and a step."""
    memory = Memory(gpu)
    for i, content in enumerate(inputs):
        memory.put((Kind.INPUT, i, ""), np.ascontiguousarray(content, np.float32).tobytes())
    memory.put((Kind.WEIGHT, 0, ""), np.ones(columns, np.float32).tobytes())
    memory.put((Kind.OUTPUT, 0, ""), bytes(output))
    memory.put((Kind.TOKENS, 0, ""), bytes(4))
    memory.put((Kind.STEP, 0, ""), step)
    return memory


def small(gpu: Gpu, rng: np.random.Generator, quick: bool) -> None:
    """Measure what works on activations."""
    for tokens, columns in ((1, 4), (1, 4096), (1, 14336), (512, 4096), (512, 14336)):
        if quick and tokens > 1:
            continue
        shape = (tokens, columns)
        call = Call(tokens, tokens, tokens, tokens, (F32,), F16, gpu.limits, inputs=(shape, shape))
        q8, half = (
            matvec.quantized(tokens, columns, -1, writes=True),
            matmul.halves(columns, tokens, -1),
        )
        cases = {
            "add": elementwise.launches("add", Kind.INPUT, shape),
            "gate": elementwise.launches("gate", Kind.INPUT, shape),
            "rows": rows.launches(tokens, columns),
            "observe": observe.launches(call),
        }
        if columns >= 128:
            cases |= {
                "rms_norm": rms_norm.launches(call, columns, 1e-5),
                "rms_norm, q8": rms_norm.launches(replace(call, wants=(q8,)), columns, 1e-5),
                "rms_norm, half": rms_norm.launches(replace(call, wants=(half,)), columns, 1e-5),
                "rms_norm of heads": rms_norm.launches(call, 128, 1e-5),
            }
            for threads in (128, 256, 512):
                fewer = replace(gpu.limits, workgroup=min(threads, gpu.limits.workgroup))
                less = replace(call, limits=fewer, wants=(q8,))
                cases[f"rms_norm, q8, {threads}"] = rms_norm.launches(less, columns, 1e-5)
        step = step_record(tokens=tokens, rows=tokens).tobytes()
        inputs = [rng.standard_normal(shape, np.float32) for _ in range(2)]
        memory = held(gpu, inputs, 4 * tokens * columns, columns, step)
        for name, launches in cases.items():
            taken = seconds(gpu, launches, memory, quick)
            print(f"{name:20} {tokens:4} x {columns:6} {1e6 * taken:9.2f} us", flush=True)
        memory.free()


def sampling(gpu: Gpu, rng: np.random.Generator, quick: bool) -> None:
    """Measure the choice of a token."""
    for vocab, deviation in ((128_256, 3.0), (128_256, 0.1), (262_144, 3.0)):
        logits = deviation * rng.standard_normal((1, vocab))
        call = Call(1, 1, 1, 1, (), F16, gpu.limits, inputs=((1, vocab),))
        for name, how in SAMPLINGS.items():
            step = step_record(
                tokens=1, rows=1, temperature=how.temperature, top_k=how.top_k, top_p=how.top_p,
                min_p=how.min_p,
            ).tobytes()  # fmt: skip
            memory = held(gpu, [logits], 4 * sample.RING, 1, step)
            taken = seconds(gpu, sample.launches(call), memory, quick)
            print(f"sample, {name:20} {vocab:7} x {deviation:3} {1e6 * taken:9.2f} us", flush=True)
            memory.free()
        if quick:
            return


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="", help="its number")
    parser.add_argument("--quick", action="store_true", help="few sizes, to see that it runs")
    args = parser.parse_args()
    gpu = open_gpu(args.device)
    rng = np.random.default_rng(1)
    print(gpu.description)
    small(gpu, rng, args.quick)
    sampling(gpu, rng, args.quick)
    gpu.close()


if __name__ == "__main__":
    main()
