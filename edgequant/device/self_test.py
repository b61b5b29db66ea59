"""The self-test of a GPU: linear layers of each block format on odd shapes, against NumPy.

A driver's compiler can turn a right kernel into a wrong one, which would write nonsense with a
straight face. So when a GPU is first met with a format, its mat-vec and its matrix product run on
random weights and on ones, also as decoding has it, between two norms, and what passed is kept as
long as device, driver and kernels stay the same. It knows the verbs of a `Gpu`, and no API.
"""

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgequant.blocks import Bytes, Floats
from edgequant.device.bind import bind
from edgequant.device.compiled import Key
from edgequant.device.protocol import Gpu
from edgequant.device.step import STEP
from edgequant.errors import DeviceError, UnsupportedError
from edgequant.formats import dequantize, find, quantize
from edgequant.graph.kernels import matvec
from edgequant.graph.kernels.compiled import INTEGERS
from edgequant.graph.launch import Call, Kind, Operand, Span
from edgequant.graph.ops.fused_linear import FusedLinear
from edgequant.graph.ops.normed_linear import NormedLinear

ROWS, COLUMNS = 97, 512  # a prime, and the fewest columns with two blocks of every format
NORMED_ROWS, EPSILON = 64, 1e-5  # whole workgroups, of those rows
NORMED = NormedLinear(FusedLinear(COLUMNS, NORMED_ROWS), EPSILON, after=True)
TOKENS = (1, 3, 9, 33)  # mat-vec, and more tokens than it takes
# Of the squares, as a share of the reference's. Activations rounded to int8 cost 5e-5, to half less
# than 1e-6; one wrong row in 97 is 1e-2.
ALLOWED = 1e-3


@dataclass(frozen=True)
class Verdict:
    """How a format did.

    Attributes:
        format: its name.
        error: the largest over all cases, as a share of the squares; infinite if not finite; None
            where the format has no kernel.
        worst: the case that had it, in words.
    """

    format: str
    error: float | None
    worst: str = ""

    @property
    def passed(self) -> bool:
        """Whether its kernels can be trusted; those that do not exist do no harm."""
        return self.error is None or self.error <= ALLOWED


class SelfTest:
    """The self-test of one GPU, and what it passed before.

    Args:
        gpu: to be tried.
        name: of the device, for the error.
        file: where what passed is kept; another one for another device, driver or kernels.
    """

    def __init__(self, gpu: Gpu, name: str, file: Path) -> None:
        self._gpu = gpu
        self._name = name
        self._file = file

    def examine(self, formats: Iterable[str]) -> Iterator[Verdict]:
        """Run the kernels of formats, one after the other, and keep what passed."""
        formats = tuple(formats)
        self._gpu.prepare([key for name in formats for key in _kernels(self._gpu, name)])
        for name in formats:
            verdict = _examine_format(self._gpu, name)
            if verdict.passed and verdict.error is not None:
                self._keep(name)
            yield verdict

    def ensure(self, formats: Collection[str]) -> None:
        """Examine the formats that did not pass before.

        Raises:
            DeviceError: kernels compute something else than NumPy.
        """
        unknown = sorted(set(formats) - passed(self._file))
        wrong = [verdict for verdict in self.examine(unknown) if not verdict.passed]
        if wrong:
            cases = "; ".join(f"{v.format}, {v.worst}: {v.error:.1e}" for v in wrong)
            raise DeviceError(
                f"{self._name}: {self._gpu.description} fails its self-test (squared error as a "
                f"share of the result's squares, {ALLOWED:.0e} allowed): {cases}.",
                hint="update the graphics driver, or use --device cpu; and please report it.",
            )

    def _keep(self, name: str) -> None:
        """Add to what is known; a folder that cannot be written means another test next time."""
        part = self._file.with_suffix(f".{os.getpid()}")
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(json.dumps(sorted(passed(self._file) | {name})), "utf-8")
            part.replace(self._file)


def examine(
    open_gpu: Callable[[], Gpu], name: str, file: Path, formats: Iterable[str]
) -> Iterator[Verdict]:
    """Run the self-test of formats on a GPU that is opened for it; see `SelfTest`."""
    gpu = open_gpu()
    try:
        yield from SelfTest(gpu, name, file).examine(formats)
    finally:
        gpu.close()


def passed(file: Path) -> set[str]:
    """Return the formats that passed, as a self-test kept them."""
    try:
        return set(json.loads(file.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return set()


def _kernels(gpu: Gpu, name: str) -> list[Key]:
    """Return what is to be compiled for a format; on many threads that takes seconds less."""
    calls: list[tuple[FusedLinear | NormedLinear, Call]] = [
        (FusedLinear(COLUMNS, ROWS), _call(gpu, (name,), tokens, exact=exact))
        for tokens in TOKENS
        for exact in _exact(gpu)
    ]
    if _is_normed(gpu, name):
        calls.append((NORMED, _call(gpu, (name, "F32", "F32"), 1, exact=False)))
    try:
        launches = [launch for op, call in calls for launch in op.launch(call)]
    except UnsupportedError:
        return []
    return [(launch.kernel, launch.constants) for launch in launches]


def _examine_format(gpu: Gpu, name: str) -> Verdict:
    """Run the cases of a format and return the worst."""
    worst = Verdict(name, 0.0)
    try:
        for case, error in _cases(gpu, name):
            if not error <= (worst.error or 0.0):
                worst = Verdict(name, error, case)
    except UnsupportedError:
        return Verdict(name, None)
    return worst


def _cases(gpu: Gpu, name: str) -> Iterator[tuple[str, float]]:
    """Yield each case in words, and its error."""
    rng = np.random.default_rng(0)
    for content, weights in (
        ("random", rng.standard_normal((ROWS, COLUMNS), np.float32)),
        ("ones", np.ones((ROWS, COLUMNS), np.float32)),
    ):
        data = quantize(find(name), weights)
        decoded = dequantize(find(name), data)
        for tokens in TOKENS:
            x = np.ones((tokens, COLUMNS), np.float32)
            if content == "random":
                x = rng.standard_normal(x.shape, np.float32)
            for exact in _exact(gpu):
                case = f"{content}, {ROWS} x {COLUMNS} by {tokens} tokens"
                out = _run(gpu, FusedLinear(COLUMNS, ROWS), x, [(name, data)], exact=exact)[0]
                error = _error(out, x @ decoded.T)
                yield case if exact else f"{case}, int8", error
        if _is_normed(gpu, name):
            case = f"{content}, {NORMED_ROWS} x {COLUMNS} between two norms, int8"
            yield case, _error_between_norms(gpu, name, data[:NORMED_ROWS], rng)


def _exact(gpu: Gpu) -> tuple[bool, ...]:
    return (True, False) if gpu.limits.integer_dot else (True,)


def _is_normed(gpu: Gpu, name: str) -> bool:
    return name in INTEGERS and matvec.takes_norms(gpu.limits)


def _error_between_norms(gpu: Gpu, name: str, data: Bytes, rng: np.random.Generator) -> float:
    """Return the error of a mat-vec with a norm on both sides, and of what it leaves the next."""
    x, norm = rng.standard_normal((2, 1, COLUMNS), np.float32)
    after = rng.standard_normal(NORMED_ROWS, np.float32)
    weights = [(name, data), ("F32", norm), ("F32", after)]
    out, left = _run(gpu, NORMED, x, weights, exact=False)
    normed = x / np.sqrt(np.square(x).mean() + np.float32(EPSILON)) * norm
    expected = normed @ dequantize(find(name), data).T
    raw, halves = left.view(np.uint8), NORMED_ROWS // matvec.BLOCK
    planes = left[NORMED_ROWS // 4 : NORMED_ROWS // 4 + 2 * halves].reshape(2, -1, 2)
    scales = planes[:, :, 0].T.reshape(-1, 1)
    values = raw[:NORMED_ROWS].view(np.int8).reshape(halves, -1) * scales
    squares = np.square(out).reshape(halves, -1).sum(1)
    return max(
        _error(out, expected),
        _error(values.reshape(1, -1), out * after),
        _error(left[-halves:], squares),
    )


def _error(out: Floats, reference: Floats) -> float:
    if not np.isfinite(out).all():
        return float("inf")
    wrong = np.sum((out - reference) ** 2, dtype=np.float64)
    return float(wrong / max(np.sum(reference**2, dtype=np.float64), 1e-300))


def _run(
    gpu: Gpu,
    op: FusedLinear | NormedLinear,
    x: Floats,
    weights: Sequence[tuple[str, NDArray[Any]]],
    *,
    exact: bool,
) -> list[Floats]:
    """Return what an op computes as the GPU does: its output, and what it derives of it.

    Args:
        gpu: where.
        op: what.
        x: its input, (tokens, columns).
        weights: each a format and its bytes.
        exact: see `Call`.
    """
    tokens = len(x)
    launches = op.launch(_call(gpu, [name for name, _ in weights], tokens, exact=exact))
    step = np.zeros((), STEP)
    step["tokens"] = step["rows"] = tokens
    contents = {
        (Kind.INPUT, 0): x.tobytes(),
        (Kind.STEP, 0): step.tobytes(),
        (Kind.OUTPUT, 0): bytes(4 * tokens * _rows(op)),
        **{(Kind.WEIGHT, i): data.tobytes() for i, (_, data) in enumerate(weights)},
    }
    spans: dict[Operand, Span] = {}
    try:
        for operand in (_place(o) for launch in launches for o in launch.operands):
            if operand not in spans:
                content = contents.get((operand.kind, operand.index), bytes(operand.nbytes))
                spans[operand] = Span(gpu.alloc(len(content)), 0, len(content))
                gpu.write(spans[operand].buffer, content)
        bound = [bind(launch, lambda o: spans[_place(o)], gpu.address) for launch in launches]
        recording = gpu.record(bound)
        gpu.wait(gpu.submit(recording))
        gpu.discard(recording)
        found = [
            np.frombuffer(gpu.read(span.buffer, span.nbytes), np.float32)
            for operand, span in spans.items()
            if operand.kind is Kind.OUTPUT or operand.index < 0
        ]
    finally:
        for span in spans.values():
            gpu.free(span.buffer)
    return [found[0].reshape(tokens, -1), *found[1:]]


def _call(gpu: Gpu, formats: Sequence[str], tokens: int, *, exact: bool) -> Call:
    return Call(
        tokens=tokens,
        rows=tokens,
        context=tokens,
        capacity=tokens,
        weights=tuple(find(name).type for name in formats),
        cache=find("F16").type,
        limits=gpu.limits,
        inputs=((tokens, COLUMNS),),
        exact=exact,
    )


def _rows(op: FusedLinear | NormedLinear) -> int:
    return op.rows if isinstance(op, FusedLinear) else op.linear.rows


def _place(operand: Operand) -> Operand:
    """Return the operand without what it does there: the same for all that lie in one place."""
    return replace(operand, reads=False, writes=False)
