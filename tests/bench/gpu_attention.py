"""Measure attention and the KV cache on a GPU: microseconds a layer, by depth, shape and cache.

    python tests/bench/gpu_attention.py [--device INDEX] [--tune] [--quick]

Layers are chained, the output of one being the queries of the next, with a cache each, so that
every layer waits for the one before and finds its cache in memory, not in the processor's. The time
is that of a submission among others, divided by its layers. GB/s is of the keys and values a layer
reads, TFLOP/s of the products a prompt needs. --tune tries other choices than
`graph/kernels/attention.py` makes. Needs NumPy only.
"""

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from edgequant.blocks import BLOCK_TYPES
from edgequant.device.bind import bind
from edgequant.device.protocol import Buffer, Gpu
from edgequant.device.step import STEP
from edgequant.device.vulkan.device import open_gpu
from edgequant.graph.kernels import attention
from edgequant.graph.launch import Call, Dispatch, Kind, Launch, Operand, Span
from edgequant.graph.ops.attention import Attention
from edgequant.graph.ops.rotate_attend import RotateAttend
from edgequant.graph.ops.rotate_store import RotateStore

SHAPES = {"8B": (32, 8, 128), "1B": (32, 8, 64)}  # heads, heads_kv, head_dim
WARM = 0.15  # seconds that a measurement repeats
COLD = 256 << 20  # bytes of caches that no processor keeps
DEPTHS = (128, 500, 1024, 4096, 16000)
PROMPTS = ((8, 128), (8, 4096), (64, 0), (512, 0), (512, 4096))  # tokens, at a depth


class Bench:
    """Layers of one shape on one GPU."""

    def __init__(self, gpu: Gpu, shape: tuple[int, int, int], cache: str, *, quick: bool) -> None:
        self.gpu, self.shape, self.cache, self.quick = gpu, shape, cache, quick

    def measure(
        self, tokens: int, past: int, *, rotate: bool = False, fused: bool = False
    ) -> float:
        """Return seconds a layer: of attention, or of rope and store, or of both as one op."""
        heads, heads_kv, head_dim = self.shape
        context = 512
        while context < past + tokens:
            context *= 2
        cache = BLOCK_TYPES[self.cache]
        widths = (heads * head_dim, heads_kv * head_dim, heads_kv * head_dim)
        inputs = tuple((tokens, width) for width in widths[: 3 if rotate or fused else 1])
        call = Call(tokens, 1, context, context, (), cache, self.gpu.limits, inputs)
        nbytes = heads_kv * context * cache.row_nbytes(head_dim)
        layers = 2 if self.quick else min(max(32, COLD // nbytes), 256 if tokens == 1 else 8)
        held = Held(self.gpu, tokens, past, widths, 2 * layers * nbytes)
        dispatches = []
        for layer in range(layers):
            first = RotateStore(layer, heads, heads_kv, head_dim, 5e5, interleaved=True)
            op = RotateAttend(first) if fused else first if rotate else RotateAttend(first).attend
            for launch in op.launch(call):
                resolve = held.resolve(layer, nbytes)
                dispatches.append(bind(launch, resolve, self.gpu.address, launch.kernel))
        taken = self._time(dispatches)
        held.free()
        return taken / layers

    def _time(self, dispatches: Sequence[Dispatch]) -> float:
        """Return the least seconds of a submission, in runs of several, once clocks are up."""
        recording = self.gpu.record(dispatches)
        self.gpu.wait(self.gpu.submit(recording))
        best, many, began = np.inf, 1 if self.quick else 8, time.perf_counter()
        while time.perf_counter() - began < (0 if self.quick else WARM) or best == np.inf:
            start = time.perf_counter()
            for _ in range(many):
                ticket = self.gpu.submit(recording)
            self.gpu.wait(ticket)
            best = min(best, (time.perf_counter() - start) / many)
        self.gpu.discard(recording)
        return best


class Held:
    """The buffers of a measurement: activations go back and forth between two."""

    def __init__(
        self, gpu: Gpu, tokens: int, past: int, widths: tuple[int, ...], caches: int
    ) -> None:
        self._gpu = gpu
        self._made: dict[object, tuple[Buffer, int]] = {}
        self._caches = self._alloc("caches", caches).buffer
        step = np.zeros((), STEP)
        step["past"], step["tokens"], step["rows"] = past, tokens, 1
        gpu.write(self._alloc("step", STEP.itemsize).buffer, step.tobytes())
        self._widths = [4 * tokens * width for width in widths]

    def resolve(self, layer: int, nbytes: int) -> Callable[[Operand], Span]:
        """Return where the operands of a layer are; its caches have `nbytes` each."""

        def find(operand: Operand) -> Span:
            match operand.kind:
                case Kind.STEP:
                    return self._alloc("step", STEP.itemsize)
                case Kind.KEYS | Kind.VALUES:
                    place = 2 * layer + (operand.kind is Kind.VALUES)
                    return Span(self._caches, place * nbytes, nbytes)
                case Kind.INPUT if operand.index == 0:
                    return self._alloc(("x", layer % 2), self._widths[0])
                case Kind.OUTPUT:
                    return self._alloc(("x", 1 - layer % 2), self._widths[0])
                case Kind.INPUT:
                    return self._alloc(("kv", operand.index), self._widths[operand.index])
                case Kind.TABLE:
                    span = self._alloc("table", len(operand.content))
                    self._gpu.write(span.buffer, operand.content)
                    return span
            return self._alloc((operand.kind, operand.index), operand.nbytes)

        return find

    def free(self) -> None:
        """Give all back."""
        for buffer, _ in self._made.values():
            self._gpu.free(buffer)

    def _alloc(self, name: object, nbytes: int) -> Span:
        if name not in self._made:
            self._made[name] = (self._gpu.alloc(nbytes), nbytes)
        return Span(self._made[name][0], 0, nbytes)


@contextmanager
def chosen(**choices: object) -> Iterator[None]:
    """Let the kernel family choose otherwise."""
    before = {name: getattr(attention, name) for name in choices}
    for name, value in choices.items():
        setattr(attention, name, value)
    yield
    for name, value in before.items():
        setattr(attention, name, value)


def table(gpu: Gpu, *, quick: bool) -> None:
    """Print what the choices made now give."""
    for (name, shape), cache in itertools.product(SHAPES.items(), ("F16", "Q8_0")):
        bench = Bench(gpu, shape, cache, quick=quick)
        heads, heads_kv, head_dim = shape
        row = BLOCK_TYPES[cache].row_nbytes(head_dim)
        print(f"{name} {cache}")
        for depth in DEPTHS[: 2 if quick else None]:
            taken = bench.measure(1, depth, fused=True)
            speed = f"{2 * heads_kv * (depth + 1) * row / taken / 1e9:6.0f} GB/s"
            print(f"  decode at {depth:6}: {1e6 * taken:8.2f} us a layer, {speed} with rope")
        for (tokens, depth), matrix in itertools.product(PROMPTS[: 1 if quick else None], (1, 0)):
            if matrix == 0 and (tokens <= 8 or gpu.limits.cooperative_matrix is None):
                continue
            with chosen(**({} if matrix else {"MATRIX_HEADS": {}})):
                taken = bench.measure(tokens, depth)
            products = 4 * heads * head_dim * (tokens * depth + tokens * (tokens + 1) / 2)
            speed = f"{products / taken / 1e12:6.2f} TFLOP/s"
            kind = "" if matrix else " without matrices"
            print(f"  {tokens:4} tokens at {depth:4}: {1e6 * taken:8.1f} us a layer, {speed}{kind}")
        for tokens in (1, 512)[: 1 if quick else None]:
            taken = bench.measure(tokens, 128, rotate=True)
            print(f"  rotate_store, {tokens:4} tokens: {1e6 * taken:8.2f} us a layer")


def tune(index: str) -> None:
    """Print what other choices would give, each on a device of its own, and which is best."""
    found: dict[tuple[int, bool], list[tuple[float, str]]] = {}
    for rows, ahead, chunks, subgroups in itertools.product((1, 2, 4), (1, 2), (1, 2), (4, 8)):
        choices = {"ROWS": rows, "AHEAD": ahead, "CHUNKS": chunks, "SUBGROUPS": subgroups}
        choices["ALONE"] = SHAPES["8B"][0] // rows
        for depth, split, busy in (
            (100, False, 0), (400, False, 0), (4096, True, 128), (4096, True, 256),
            (4096, True, 512),
        ):  # fmt: skip
            gpu = open_gpu(index)  # pipelines made late in a process are slow on NVIDIA
            bench = Bench(gpu, SHAPES["8B"], "F16", quick=False)
            with chosen(**choices, BUSY=busy, UNSPLIT=0 if split else 512, SHARE=64):
                taken = bench.measure(1, depth, fused=True)
            gpu.close()
            words = " ".join(f"{name.lower()} {value}" for name, value in choices.items())
            found.setdefault((depth, split), []).append((taken, f"{words} busy {busy}"))
    for (depth, split), tried in found.items():
        print(f"8B F16 decode at {depth}, {'if' if split else 'not'} split, us a layer")
        tried.sort()
        for taken, words in (*tried[:8], tried[-1]):
            print(f"  {1e6 * taken:8.2f} {words}")


def launches_of(gpu: Gpu) -> tuple[Launch, ...]:
    """Return what decode at 4096 launches."""
    call = Call(1, 1, 8192, 8192, (), BLOCK_TYPES["F16"], gpu.limits, ((1, 4096),))
    return Attention(0, *SHAPES["8B"]).launch(call)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="", help="index of the Vulkan device")
    parser.add_argument("--tune", action="store_true", help="try other choices too")
    parser.add_argument("--quick", action="store_true", help="only see that it runs")
    args = parser.parse_args()
    if args.tune:
        tune(args.device)
    gpu = open_gpu(args.device)
    print(gpu.description)
    table(gpu, quick=args.quick)
    for launch in launches_of(gpu):
        print(launch.kernel, launch.workgroups, launch.constants)
    gpu.close()


if __name__ == "__main__":
    main()
