"""Measure mat-vec kernels on a GPU: microseconds, GB/s and share of a plain read of memory.

    python tests/bench/gpu_matvec.py [--device INDEX] [--tune] [--only 8B] [--formats Q6_K]

Every figure is of a chain of matrices of one shape that together are larger than a cache, each
waiting for the one before as in a decode step: the time of one submission, less that of an empty
one, over the number of matrices. `GB/s` counts the weights' bytes. --tune tries many spreads over
threads and prints the best; without, the one that `graph/kernels/matvec.py` chooses. The first rows
are compared with NumPy. Needs NumPy only.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from layers import Case

from edgequant.blocks import BLOCK_TYPES, TensorInfo, Weight
from edgequant.device.bind import bind
from edgequant.device.protocol import Buffer, Gpu
from edgequant.device.vulkan.device import open_gpu
from edgequant.formats import find, quantize
from edgequant.formats.matrix import Matrix
from edgequant.formats.search import Effort
from edgequant.graph.kernels import matvec, read_memory
from edgequant.graph.launch import Call, Dispatch, Kind, Operand, Span

COLD = 400 << 20  # bytes that no processor keeps
WARM = 0.1  # seconds of work, after which a GPU that slept while kernels were compiled is awake
SAMPLE = 64  # rows that are really encoded, and repeated

CASES = (
    Case("8B q, o", "Q4_K", 4096, 4096),
    Case("8B k, v", "Q4_K", 1024, 4096),
    Case("8B v", "Q6_K", 1024, 4096),
    Case("8B gate, up", "Q4_K", 14336, 4096, gated=True),
    Case("8B down", "Q4_K", 4096, 14336, residual=True),
    Case("8B down", "Q6_K", 4096, 14336, residual=True),
    Case("8B output", "Q6_K", 128256, 4096),
    Case("3B q, o", "Q4_K", 3072, 3072),
    Case("3B gate, up", "Q4_K", 8192, 3072, gated=True),
    Case("3B down", "Q6_K", 3072, 8192, residual=True),
    Case("1B q, o", "Q4_K", 2048, 2048),
    Case("1B gate, up", "Q4_K", 8192, 2048, gated=True),
    Case("1B down", "Q6_K", 2048, 8192, residual=True),
    *(
        Case("8B q, o", fmt, 4096, 4096)
        for fmt in ("Q8_0", "Q5_K", "Q4_0", "Q5_0", "Q2_K", "Q3_K", "IQ4_XS", "F16")
    ),
)
SPREADS = (
    (32, 32), (64, 32), (128, 32), (256, 32), (512, 32), (64, 64), (128, 64), (256, 64), (512, 64),
    (128, 128), (256, 128),
)  # fmt: skip


class Bench:
    """Chains of matrices on one GPU."""

    def __init__(self, gpu: Gpu, tokens: int, *, exact: bool, quick: bool) -> None:
        self.gpu, self.tokens, self.exact, self.quick = gpu, tokens, exact, quick
        self.rng = np.random.default_rng(1)
        self.read_gbs = 0.0

    def ceiling(self) -> float:
        """Measure a plain read, GB/s."""
        nbytes = (1 << 22) if self.quick else (2 << 30)
        memory, out = self.gpu.alloc(nbytes), self.gpu.alloc(16)
        spans = {Kind.INPUT: Span(memory, 0, nbytes), Kind.OUTPUT: Span(out, 0, 16)}
        best = 0.0
        for workgroups in (528, 1056, 2112, 4224, 8448):
            (launch,) = read_memory.launches(nbytes, workgroups)
            one = bind(launch, lambda o: spans[o.kind], self.gpu.address)
            taken = (self.seconds([one] * 5) - self.seconds([one])) / 4
            best = max(best, nbytes / taken / 1e9)
        self.gpu.free(memory)
        self.gpu.free(out)
        return best

    def seconds(self, dispatches: Sequence[Dispatch]) -> float:
        """Return the least seconds of a submission, once the GPU's clock is up."""
        recording = self.gpu.record(dispatches)
        best, begun, runs = np.inf, time.perf_counter(), 0
        while runs < 6 or time.perf_counter() - begun < WARM:
            start = time.perf_counter()
            self.gpu.wait(self.gpu.submit(recording))
            best = min(best, time.perf_counter() - start)
            runs += 1
            if self.quick:
                break
        self.gpu.discard(recording)
        return float(best)

    def measure(self, case: Case, tunings: Sequence[matvec.Tuning | None]) -> Iterator[str]:
        """Yield a line for each tuning, the fastest first."""
        held = Held(self, case)
        lines = []
        for tuning in tunings:
            call = held.call(exact=self.exact)
            chosen = tuning or matvec.tune(call, held.linear)
            launches = matvec.launches(call, held.linear, chosen)
            first = [bind(launch, held.resolve(0), self.gpu.address) for launch in launches]
            begun = time.perf_counter()
            self.gpu.discard(self.gpu.record(first))
            compiled = time.perf_counter() - begun
            self.seconds(first)
            wrong = held.error(rounded=len(launches) > 1)
            chain = [
                bind(launches[-1], held.resolve(i), self.gpu.address) for i in range(held.count)
            ]
            taken = (self.seconds(first + chain) - self.seconds(first)) / held.count
            gbs = held.nbytes / taken / 1e9
            made = f"{launches[-1].kernel}, compiled in {compiled * 1e3:.0f} ms"
            lines.append((taken, gbs, chosen, wrong, made))
        held.free()
        for taken, gbs, chosen, wrong, made in sorted(lines, key=lambda line: line[0]):
            yield (
                f"{case.label:12} {case.fmt:7} {case.rows:6} x {case.columns:5}"
                f"{' x 2' if case.gated else '    '} {taken * 1e6:8.2f} us {gbs:7.0f} GB/s"
                f" {gbs / self.read_gbs:5.0%}  threads {chosen.threads:3} team {chosen.team:3}"
                f" rows {chosen.rows}"
                f"  error {wrong:.0e}  {made}"
            )


class Held:
    """The memory of a case."""

    def __init__(self, bench: Bench, case: Case) -> None:
        self.gpu, self.case, self.tokens = bench.gpu, case, bench.tokens
        self.linear = case.linear
        self.type = BLOCK_TYPES[case.fmt]
        values = bench.rng.standard_normal((SAMPLE, case.columns), np.float32) / 64
        sample = quantize(find(case.fmt), values, effort=Effort.FAST)
        info = TensorInfo("weight", self.type, (*sample.shape[:1], case.columns))
        self.sample = Matrix(Weight(info, sample))
        matrices = 2 if case.gated else 1
        self.one = case.rows * self.type.row_nbytes(case.columns)
        self.one += -self.one % 32
        self.nbytes = matrices * case.rows * self.type.row_nbytes(case.columns)
        self.count = 3 if bench.quick else max(8, COLD // self.nbytes)
        whole = np.resize(sample.reshape(-1), self.one)
        self.weights = [self._put(whole.tobytes()) for _ in range(self.count * matrices)]
        self.x = bench.rng.standard_normal((self.tokens, case.columns), np.float32)
        self.added = bench.rng.standard_normal((self.tokens, case.rows), np.float32)
        self.inputs = [self._put(self.x.tobytes()), self._put(self.added.tobytes())]
        self.out = self.gpu.alloc(4 * self.tokens * case.rows)
        self.derived = self.gpu.alloc(2 * self.tokens * case.columns)

    def call(self, *, exact: bool) -> Call:
        """Return what a recording would ask."""
        inputs = ((self.tokens, self.case.columns), (self.tokens, self.case.rows))
        cache = BLOCK_TYPES["F16"]
        types = (self.type,) * (2 if self.case.gated else 1)
        return Call(
            self.tokens, self.tokens, 512, 512, types, cache, self.gpu.limits, inputs, exact=exact
        )

    def resolve(self, number: int) -> object:
        """Return where operands of matrix `number` of the chain are."""

        def where(operand: Operand) -> Span:
            if operand.kind is Kind.WEIGHT:
                buffer = self.weights[number * (2 if self.case.gated else 1) + operand.index]
                return Span(buffer, 0, self.one)
            if operand.kind is Kind.INPUT:
                return Span(self.inputs[operand.index], 0, 4)
            if operand.kind is Kind.OUTPUT:
                return Span(self.out, 0, 4 * self.tokens * self.case.rows)
            return Span(self.derived, 0, operand.nbytes)

        return where

    def error(self, *, rounded: bool) -> float:
        """Return the squared error of the first rows as a share of what NumPy says."""
        raw = self.gpu.read(self.out, 4 * self.tokens * self.case.rows)
        out = np.frombuffer(raw, np.float32).reshape(self.tokens, -1)[:, :SAMPLE]
        x = self.x
        if rounded:
            blocks = x.reshape(-1, 32)
            d = np.abs(blocks).max(1, keepdims=True) / np.float32(127)
            x = (np.rint(blocks / d) * d).reshape(x.shape)
        expected = x @ self.sample.rows(0, SAMPLE).T
        if self.case.gated:
            expected = expected / (1 + np.exp(-expected)) * expected
        if self.case.residual:
            expected = expected + self.added[:, :SAMPLE]
        return float(((out - expected) ** 2).sum() / (expected**2).sum())

    def _put(self, content: bytes) -> Buffer:
        buffer = self.gpu.alloc(len(content))
        self.gpu.write(buffer, content)
        return buffer

    def free(self) -> None:
        """Give all of it back."""
        for buffer in (*self.weights, *self.inputs, self.out, self.derived):
            self.gpu.free(buffer)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Measure mat-vec kernels.")
    parser.add_argument("--device", default="", help="number of the Vulkan device")
    parser.add_argument("--tune", action="store_true", help="try many spreads over threads")
    parser.add_argument("--only", default="", help="cases whose label has this word")
    parser.add_argument("--formats", default="", help="cases of these formats, such as Q4_K,Q6_K")
    parser.add_argument("--tokens", type=int, default=1, help="of a call, 1 to 8")
    parser.add_argument("--float", action="store_true", help="keep activations in float32")
    parser.add_argument("--quick", action="store_true", help="once, small: see that it works")
    parser.add_argument("--shaders", type=Path, help="folder of kernels compiled otherwise")
    parser.add_argument("--rows", type=int, help="of a team, 1 or 2; by default both are tried")
    parser.add_argument("--best", type=int, default=3, help="lines of each case with --tune")
    asked = parser.parse_args()
    read_gbs = 0.0
    for case in CASES:
        wanted = asked.only.lower() in case.label.lower()
        if not wanted or (asked.formats and case.fmt not in asked.formats.split(",")):
            continue
        # One device a case, so that the memory and kernels of one do not weigh on the next.
        gpu = open_gpu(asked.device, shaders=asked.shaders)
        bench = Bench(gpu, asked.tokens, exact=asked.float, quick=asked.quick)
        if not read_gbs:
            read_gbs = bench.ceiling()
            print(f"{gpu.description}; plain read {read_gbs:.0f} GB/s", flush=True)
        bench.read_gbs = read_gbs
        lanes = gpu.limits.subgroup
        tunings: list[matvec.Tuning | None] = [None]
        if asked.tune:
            both = (1, 2) if asked.tokens == 1 else (1,)
            tunings = [
                matvec.Tuning(threads * lanes // 32, team * lanes // 32, rows)
                for threads, team in SPREADS
                for rows in ((asked.rows,) if asked.rows else both)
            ]
        small = replace(case, rows=min(case.rows, 256) if asked.quick else case.rows)
        for line in list(bench.measure(small, tunings))[: asked.best]:
            print(line, flush=True)
        gpu.close()


if __name__ == "__main__":
    main()
