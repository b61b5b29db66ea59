"""Measure products with many tokens on a GPU: microseconds, TFLOP/s, squared error.

    python tests/bench/gpu_matmul.py [--device INDEX] [--only Q6_K] [--tokens 512] [--tiles|--plain]

Every figure is of a chain of matrices of one shape, each waiting for the one before as in a prefill
step; what is launched around the multiplication (`halve`, `matmul_parts`) is in it, and shown
apart. --tiles tries every tile that suits the GPU; without, the one that graph/kernels/matmul.py
chooses. The first rows are compared with NumPy. Needs NumPy only.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from layers import Case

from edgequant.blocks import BLOCK_TYPES, TensorInfo, Weight
from edgequant.device.bind import bind
from edgequant.device.protocol import Buffer, Gpu
from edgequant.device.step import STEP
from edgequant.device.vulkan.device import open_gpu
from edgequant.formats import find, quantize
from edgequant.formats.matrix import Matrix
from edgequant.formats.search import Effort
from edgequant.graph.kernels import matmul
from edgequant.graph.launch import Call, Kind, Launch, Limits, Operand, Span

COLD = 100 << 20  # bytes of different matrices in a chain
SAMPLE = 64  # rows that are really encoded, and repeated

CASES = (
    Case("8B q", "Q4_K", 4096, 4096),
    Case("8B k, v", "Q4_K", 1024, 4096),
    Case("8B v", "Q6_K", 1024, 4096),
    Case("8B o", "Q4_K", 4096, 4096, residual=True),
    Case("8B gate, up", "Q4_K", 14336, 4096, gated=True),
    Case("8B down", "Q4_K", 4096, 14336, residual=True),
    Case("8B down", "Q6_K", 4096, 14336, residual=True),
    Case("8B output", "Q6_K", 128256, 4096),
    Case("1B q", "Q4_K", 2048, 2048),
    Case("1B gate, up", "Q4_K", 8192, 2048, gated=True),
    Case("1B down", "Q6_K", 2048, 8192, residual=True),
    *(Case("8B q", fmt, 4096, 4096) for fmt in ("Q8_0", "Q5_K", "Q4_0", "IQ4_XS", "F16", "F32")),
)


class Held:
    """The memory of a case."""

    def __init__(self, gpu: Gpu, limits: Limits, case: Case, tokens: int) -> None:
        self.gpu, self.limits, self.case, self.tokens = gpu, limits, case, tokens
        self.linear = case.linear
        self.type, rng = BLOCK_TYPES[case.fmt], np.random.default_rng(1)
        values = rng.standard_normal((SAMPLE, case.columns), np.float32) / 64
        sample = quantize(find(case.fmt), values, effort=Effort.FAST)
        info = TensorInfo("weight", self.type, (SAMPLE, case.columns))
        self.sample = Matrix(Weight(info, sample))
        self.nbytes = case.rows * self.type.row_nbytes(case.columns)
        self.count = max(4, min(16, COLD // self.nbytes))
        whole = np.resize(sample.reshape(-1), self.nbytes).tobytes()
        self.weights = [self._put(whole) for _ in range(self.count)]
        self.x = rng.standard_normal((tokens, case.columns), np.float32)
        self.added = rng.standard_normal((tokens, case.rows), np.float32)
        self.inputs = [self._put(self.x.tobytes()), self._put(self.added.tobytes())]
        self.step = self._put(np.array((0, tokens, tokens) + (0,) * 6 + ([0] * 3,), STEP).tobytes())
        self.out = gpu.alloc(4 * tokens * case.rows)
        self.made: dict[object, Span] = {}

    def call(self) -> Call:
        """Return what a recording would ask."""
        inputs = ((self.tokens, self.case.columns), (self.tokens, self.case.rows))
        types = (self.type,) * (2 if self.case.gated else 1)
        cache = BLOCK_TYPES["F16"]
        return Call(self.tokens, 1, 512, 512, types, cache, self.limits, inputs)

    def resolve(self, number: int) -> Callable[[Operand], Span]:
        """Return where operands of matrix `number` of the chain are."""

        def where(operand: Operand) -> Span:
            if operand.kind is Kind.WEIGHT:
                return Span(self.weights[(number + operand.index) % self.count], 0, self.nbytes)
            if operand.kind is Kind.INPUT:
                return Span(self.inputs[operand.index], 0, 4)
            if operand.kind is Kind.OUTPUT:
                return Span(self.out, 0, 4 * self.tokens * self.case.rows)
            if operand.kind is Kind.STEP:
                return Span(self.step, 0, STEP.itemsize)
            key = (operand.kind, operand.index, operand.nbytes)
            if key not in self.made:
                self.made[key] = Span(self.gpu.alloc(operand.nbytes), 0, operand.nbytes)
            return self.made[key]

        return where

    def seconds(self, launches: Sequence[Launch]) -> np.ndarray:
        """Return the seconds of each launch, the least of its place in the chain on average."""
        chain = [
            bind(launch, self.resolve(i), self.gpu.address)
            for i in range(self.count)
            for launch in launches
        ]
        recording = self.gpu.record(chain, timed=True)
        taken = [self.gpu.wait(self.gpu.submit(recording)) for _ in range(4)]
        self.gpu.discard(recording)
        return np.array(taken).reshape(4, self.count, -1).min(0).mean(0)

    def error(self) -> float:
        """Return the squared error of the first rows as a share of what NumPy says."""
        raw = self.gpu.read(self.out, 4 * self.tokens * self.case.rows)
        out = np.frombuffer(raw, np.float32).reshape(self.tokens, -1)[:, :SAMPLE]
        expected = self.x.astype(np.float64) @ self.sample.rows(0, SAMPLE).T
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
        made = [span.buffer for span in self.made.values()]
        for buffer in (*self.weights, *self.inputs, self.step, self.out, *made):
            self.gpu.free(buffer)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Measure products with many tokens.")
    parser.add_argument("--device", default="", help="number of the Vulkan device")
    parser.add_argument("--only", default="", help="cases whose label or format has this word")
    parser.add_argument("--tokens", type=int, default=512, help="of a call, more than 8")
    parser.add_argument("--tiles", action="store_true", help="try every tile that suits")
    parser.add_argument("--plain", action="store_true", help="without cooperative matrices")
    parser.add_argument("--quick", action="store_true", help="small: see that it works")
    asked = parser.parse_args()
    gpu = open_gpu(asked.device)
    print(gpu.description, flush=True)
    limits = replace(gpu.limits, cooperative_matrix=None) if asked.plain else gpu.limits
    tiles: list[matmul.Tile | None] = [None]
    if asked.tiles:
        tiles = [tile for tile in matmul.TILES if tile.suits(limits)]
    for case in CASES:
        if asked.only.lower() not in f"{case.label} {case.fmt}".lower():
            continue
        if asked.quick:
            case = replace(case, rows=min(case.rows, 128), columns=min(case.columns, 512))
        held = Held(gpu, limits, case, asked.tokens)
        for tile in tiles:
            launches = matmul.launches(held.call(), held.linear, tile)
            taken = held.seconds(launches)
            multiplied = 2 * case.rows * case.columns * asked.tokens * (2 if case.gated else 1)
            around = ", ".join(
                f"{launch.kernel} {one * 1e6:.1f}"
                for launch, one in zip(launches, taken, strict=True)
            )
            print(
                f"{case.label:12} {case.fmt:7} {case.rows:6} x {case.columns:5}"
                f"{' x 2' if case.gated else '    '} {taken.sum() * 1e6:8.1f} us"
                f" {multiplied / taken.sum() / 1e12:6.1f} TFLOP/s  error {held.error():.0e}"
                f"  ({around} us; grid {launches[-1 if len(launches) < 3 else 1].workgroups})",
                flush=True,
            )
        held.free()
    gpu.close()


if __name__ == "__main__":
    main()
