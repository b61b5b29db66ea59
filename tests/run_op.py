"""Ops and kernels on a GPU, in memory that shows what they do wrong.

Every operand lies in a buffer of its own between guards; outputs, scratch and the rows of a bucket
that do not count are filled with NaN before a run. After it the guards, and all that no kernel said
it writes, must be as they were.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from kv_cache import loaded, stored
from numpy.typing import NDArray

from edgequant.blocks import BLOCK_TYPES, Floats, TensorInfo, Weight
from edgequant.device.bind import bind
from edgequant.device.protocol import Gpu
from edgequant.device.step import STEP
from edgequant.formats import find
from edgequant.formats.format import quantize
from edgequant.formats.matrix import Matrix
from edgequant.graph import ROWS, TOKENS, Launchable, Step
from edgequant.graph.launch import Call, Kind, Launch, Limits, Operand, Span

GUARD = 288  # bytes before and after; a multiple of 32 and not of 64, as a tensor in a file may lie
POISON = b"\xff"  # NaN as float32, float16 and bfloat16; -1 as an integer


def nmse(out: NDArray[Any], ref: NDArray[Any]) -> float:
    """Return the squared error as a share of the reference's squares; infinity where not finite."""
    assert out.shape == ref.shape, f"{out.shape} is not {ref.shape}"
    wrong, right = out.astype(np.float64) - ref, ref.astype(np.float64)
    if not np.isfinite(wrong).all():
        return np.inf
    return float(np.sum(wrong**2) / max(np.sum(right**2), 1e-300))


def encoded(values: Floats, fmt: str = "F32", name: str = "weight") -> Matrix:
    """Return a weight as a file would hold it: its values rounded to a format."""
    rows = np.asarray(values, np.float32).reshape(-1, values.shape[-1])
    info = TensorInfo(name, BLOCK_TYPES[fmt], values.shape)
    return Matrix(Weight(info, quantize(find(fmt), rows)))


def poisoned(values: NDArray[Any]) -> bool:
    """Tell whether nothing was ever written there."""
    return values.tobytes() == POISON * values.nbytes


class Memory:
    """Guarded buffers on a GPU, one a name."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._spans: dict[object, Span] = {}
        self._before: dict[object, bytes] = {}

    def put(self, name: object, content: bytes) -> None:
        """Make a buffer that holds bytes."""
        buffer = self._gpu.alloc(len(content) + 2 * GUARD)
        self._gpu.write(buffer, POISON * GUARD + content + POISON * GUARD)
        self._spans[name] = Span(buffer, GUARD, len(content))
        self._before[name] = content

    def poison(self, name: object, nbytes: int) -> Span:
        """Return a buffer, made and poisoned when first asked for."""
        if name not in self._spans:
            self.put(name, POISON * nbytes)
        assert self._spans[name].nbytes >= nbytes, f"{name} is asked for with two sizes"
        return self._spans[name]

    def __getitem__(self, name: object) -> Span:
        return self._spans[name]

    def get(self, name: object, dtype: Any = np.float32) -> NDArray[Any]:
        """Return what a buffer holds now."""
        span = self._spans[name]
        return np.frombuffer(self._gpu.read(span.buffer, span.nbytes, span.offset), dtype)

    def check(self, written: set[object]) -> None:
        """Fail where a guard, or anything but what is `written`, has changed."""
        for name, span in self._spans.items():
            whole = self._gpu.read(span.buffer, span.nbytes + 2 * GUARD)
            for guard in (whole[:GUARD], whole[-GUARD:]):
                assert guard == POISON * GUARD, f"{name}: written outside"
            if name not in written:
                assert whole[GUARD:-GUARD] == self._before[name], f"{name}: written, but not said"

    def free(self) -> None:
        """Give all of it back."""
        for span in self._spans.values():
            self._gpu.free(span.buffer)


def run_launches(
    gpu: Gpu, launches: Sequence[Launch], resolve: Callable[[Operand], Span], times: int = 1
) -> None:
    """Run launches in order, so many times, from one recording."""
    recording = gpu.record([bind(launch, resolve, gpu.address) for launch in launches])
    for _ in range(times):
        ticket = gpu.submit(recording)
    gpu.wait(ticket)
    gpu.discard(recording)


@dataclass(frozen=True)
class Ran:
    """What a run left behind.

    Attributes:
        out: the rows that count, (tokens or rows, columns) float32.
        keys: all of the cache as float32, (capacity, heads_kv, head_dim), NaN where nothing is.
        values: the same.
        derived: what was derived, by tag.
        kernels: that ran, in order.
        padding: the rows that do not count; NaN where nothing was written.
    """

    out: Floats
    keys: Floats | None
    values: Floats | None
    derived: Mapping[str, NDArray[np.uint8]]
    kernels: tuple[str, ...]
    padding: Floats


def run_op(
    gpu: Gpu,
    op: Launchable,
    inputs: Sequence[Floats] = (),
    weights: Sequence[Matrix] = (),
    *,
    ids: Sequence[int] | None = None,
    past: int = 0,
    rows: int | None = None,
    bucket: int | None = None,
    rows_bucket: int | None = None,
    context: int | None = None,
    capacity: int | None = None,
    cache: tuple[Floats, Floats] | None = None,
    cache_type: str = "F16",
    exact: bool = False,
    limits: Limits | None = None,
    wants: Sequence[Operand] = (),
) -> Ran:
    """Run one op.

    Args:
        gpu: where.
        op: what.
        inputs: (tokens, columns) each, the rows that count.
        weights: see `encoded`.
        ids: the tokens' ids; zeros by default.
        past: tokens in the cache before.
        rows: of logits wanted; by default all.
        bucket: tokens of the recording; by default what is there.
        rows_bucket: rows of the recording; by default what is wanted.
        context: that attention may see; by default past and bucket.
        capacity: of the cache; by default the context.
        cache: keys and values so far, (past, heads_kv, head_dim) each, for ops with a cache.
        cache_type: F16, Q8_0 or F32.
        exact: see `Call`.
        limits: to choose kernels by, where other than the GPU's own.
        wants: see `Call`.
    """
    tokens = len(inputs[0]) if inputs else len(ids or ())
    bucket = bucket or tokens
    rows = rows or tokens
    rows_bucket = rows_bucket or rows
    context = context or past + bucket
    capacity = capacity or context
    call = Call(
        tokens=bucket, rows=rows_bucket, context=context, capacity=capacity,
        weights=tuple(w.weight.type for w in weights), cache=BLOCK_TYPES[cache_type],
        limits=limits or gpu.limits, inputs=tuple((bucket, x.shape[-1]) for x in inputs),
        exact=exact, wants=tuple(wants),
    )  # fmt: skip
    memory = Memory(gpu)
    for i, x in enumerate(inputs):
        padded = np.full((bucket, x.shape[-1]), np.nan, np.float32)
        padded[:tokens] = x
        memory.put((Kind.INPUT, i), padded.tobytes())
    for i, weight in enumerate(weights):
        memory.put((Kind.WEIGHT, i), weight.weight.data.tobytes())
    memory.put((Kind.TOKENS, 0), _padded_ids(ids, tokens, bucket).tobytes())
    memory.put((Kind.STEP, 0), step_record(past=past, tokens=tokens, rows=rows).tobytes())
    layer = getattr(op, "layer", 0)
    if cache is not None:
        for kind, content in zip((Kind.KEYS, Kind.VALUES), cache, strict=True):
            memory.put((kind, layer), stored(content, capacity, cache_type))
    shape = op.shape(*((TOKENS, x.shape[-1]) for x in inputs))
    sizes = {TOKENS: bucket, ROWS: rows_bucket}
    shape = tuple(sizes.get(n, n) for n in shape)
    memory.poison((Kind.OUTPUT, 0), 4 * int(np.prod(shape)))

    launches = op.launch(call)
    written = set()
    for operand in (o for launch in launches for o in launch.operands):
        if operand.kind in (Kind.SCRATCH, Kind.DERIVED):
            memory.poison(_name(operand), operand.nbytes)
        if operand.kind is Kind.TABLE:
            memory.put(_name(operand), operand.content)
        if operand.writes:
            written.add(_name(operand))
    run_launches(gpu, launches, lambda operand: memory[_name(operand)])
    memory.check(written)
    out = memory.get((Kind.OUTPUT, 0)).reshape(shape)
    count = rows if op.shape(*((TOKENS, x.shape[-1]) for x in inputs))[0] is ROWS else tokens
    keys, values = (
        (loaded(memory.get((kind, layer), np.uint8), cache[0].shape[1:], cache_type)
         for kind in (Kind.KEYS, Kind.VALUES)) if cache is not None else (None, None)
    )  # fmt: skip
    derived = {
        operand.tag: memory.get(_name(operand), np.uint8)
        for launch in launches for operand in launch.operands if operand.kind is Kind.DERIVED
    }  # fmt: skip
    memory.free()
    kernels = tuple(launch.kernel for launch in launches)
    return Ran(out[:count].copy(), keys, values, derived, kernels, out[count:].copy())


def reference(
    op: Launchable,
    inputs: Sequence[Floats] = (),
    weights: Sequence[Matrix] = (),
    *,
    ids: Sequence[int] | None = None,
    past: int = 0,
    rows: int | None = None,
    cache: tuple[Floats, Floats] | None = None,
) -> Ran:
    """Return what NumPy says of the same; the cache has as many tokens as there are after it."""
    tokens = len(inputs[0]) if inputs else len(ids or ())
    held = {}
    if cache is not None:
        after = np.zeros((tokens, *cache[0].shape[1:]), np.float32)
        held[getattr(op, "layer", 0)] = tuple(np.concatenate([kept, after]) for kept in cache)
    given = np.asarray(ids if ids is not None else [0] * tokens, np.int32)
    out = op.reference(inputs, weights, Step(given, past, rows or tokens, held))
    keys, values = held.get(getattr(op, "layer", 0), (None, None))
    return Ran(out, keys, values, {}, (), out[:0])


def step_record(**fields: float) -> NDArray[Any]:
    """Return a step record with these fields; the others are zero."""
    record = np.zeros((), STEP)
    for field, value in fields.items():
        record[field] = value
    return record


def without(limits: Limits, **changes: object) -> Limits:
    """Return limits with some fields other, such as `integer_dot=False`."""
    return replace(limits, **changes)


def _name(operand: Operand) -> object:
    if operand.kind is Kind.DERIVED:
        return (operand.kind, operand.index, operand.tag)
    if operand.kind is Kind.TABLE:
        return (operand.kind, operand.content)
    return (operand.kind, operand.index)


def _padded_ids(ids: Sequence[int] | None, tokens: int, bucket: int) -> NDArray[np.uint32]:
    padded = np.zeros(bucket, np.uint32)
    padded[:tokens] = 0 if ids is None else ids
    return padded
