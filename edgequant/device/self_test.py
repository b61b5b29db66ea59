"""The self-test of a GPU: linear layers of each block format on odd shapes, against NumPy.

A driver's compiler can turn a right kernel into a wrong one, which would write nonsense with a
straight face. So when a GPU is first met with a format, its mat-vec and its matrix product run on
random weights and on ones, and what passed is kept as long as device, driver and kernels stay the
same. It knows the verbs of a `Gpu`, and no API.
"""

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgequant.blocks import Floats, TensorInfo, Weight
from edgequant.device.bind import bind
from edgequant.device.protocol import Gpu
from edgequant.device.step import STEP
from edgequant.errors import DeviceError, UnsupportedError
from edgequant.formats import dequantize, find, quantize
from edgequant.graph.launch import Call, Kind, Launch, Operand, Span
from edgequant.graph.ops.fused_linear import FusedLinear

ROWS, COLUMNS = 97, 512  # a prime, and the fewest columns with two blocks of every format
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


def _examine_format(gpu: Gpu, name: str) -> Verdict:
    """Run the cases of a format and return the worst."""
    rng = np.random.default_rng(0)
    worst = Verdict(name, 0.0)
    rounds = gpu.limits.integer_dot or gpu.limits.cooperative_matrix is not None
    for content, weights in (
        ("random", rng.standard_normal((ROWS, COLUMNS), np.float32)),
        ("ones", np.ones((ROWS, COLUMNS), np.float32)),
    ):
        info = TensorInfo(content, find(name).type, (ROWS, COLUMNS))
        weight = Weight(info, quantize(find(name), weights))
        decoded = dequantize(find(name), weight.data)
        for tokens in TOKENS:
            shape = (tokens, COLUMNS)
            x = np.ones(shape, np.float32)
            if content == "random":
                x = rng.standard_normal(shape, np.float32)
            for exact in (True, False) if rounds else (True,):
                try:
                    error = _error(_run(gpu, weight, x, exact=exact), x @ decoded.T)
                except UnsupportedError:
                    return Verdict(name, None)
                if not error <= (worst.error or 0.0):
                    kind = "" if exact else ", rounded"
                    case = f"{content}, {ROWS} x {COLUMNS} by {tokens} tokens{kind}"
                    worst = Verdict(name, error, case)
    return worst


def _error(out: Floats, reference: Floats) -> float:
    if not np.isfinite(out).all():
        return float("inf")
    wrong = np.sum((out - reference) ** 2, dtype=np.float64)
    return float(wrong / np.sum(reference**2, dtype=np.float64))


def _run(gpu: Gpu, weight: Weight, x: Floats, *, exact: bool) -> Floats:
    """Return x W^T as the GPU computes it."""
    tokens = len(x)
    call = Call(
        tokens=tokens,
        rows=tokens,
        context=tokens,
        capacity=tokens,
        weights=(weight.type,),
        cache=find("F16").type,
        limits=gpu.limits,
        inputs=(x.shape,),
        exact=exact,
    )
    launches = FusedLinear(COLUMNS, ROWS).launch(call)
    step = np.zeros((), STEP)
    step["tokens"] = step["rows"] = tokens
    contents = {
        Kind.INPUT: x.tobytes(),
        Kind.WEIGHT: weight.data.tobytes(),
        Kind.STEP: step.tobytes(),
        Kind.OUTPUT: bytes(4 * tokens * ROWS),
    }
    spans: dict[object, Span] = {}
    try:
        for key, nbytes, content in _operands(launches, contents):
            spans[key] = Span(gpu.alloc(nbytes), 0, nbytes)
            gpu.write(spans[key].buffer, content)
        bound = [bind(launch, lambda o: spans[_key(o)], gpu.address) for launch in launches]
        recording = gpu.record(bound)
        gpu.wait(gpu.submit(recording))
        gpu.discard(recording)
        output = spans[Kind.OUTPUT, 0, ""]
        raw = gpu.read(output.buffer, output.nbytes)
    finally:
        for span in spans.values():
            gpu.free(span.buffer)
    return np.frombuffer(raw, np.float32).reshape(tokens, ROWS)


def _operands(
    launches: tuple[Launch, ...], contents: dict[Kind, bytes]
) -> Iterator[tuple[object, int, bytes]]:
    """Yield each operand once: its key, bytes, and content where it has one."""
    seen = set()
    for operand in (operand for launch in launches for operand in launch.operands):
        if _key(operand) not in seen:
            seen.add(_key(operand))
            content = contents.get(operand.kind, b"")
            yield _key(operand), len(content) or operand.nbytes, content


def _key(operand: Operand) -> object:
    return operand.kind, operand.index, operand.tag
