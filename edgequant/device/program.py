"""A graph on a GPU: loaded once, recorded in buckets, replayed a step.

A step writes the step record and the ids of its tokens, submits a recording and reads logits. While
tokens are generated, a sampling kernel writes both, and the host only submits and listens. It knows
graphs, launches and the verbs of a `Gpu`; no model, no text and no API.
"""

import secrets
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from edgequant.blocks import BlockType, Floats, Weights
from edgequant.device import purposes
from edgequant.device.buckets import Bucket, batches, context_of, contexts, cut, smallest
from edgequant.device.ceilings import measure_ceilings
from edgequant.device.protocol import (
    Ceilings,
    Gpu,
    Place,
    Sampling,
    Sums,
    Ticket,
    Timing,
    Tokens,
)
from edgequant.device.recorder import Purpose, Recorded, Recorder, Repertoire, plan_bucket
from edgequant.device.resident import Arrival, Resident
from edgequant.device.step import STEP
from edgequant.device.timings import tell
from edgequant.graph import Graph
from edgequant.graph.fuse import fuse
from edgequant.graph.kernels.sample import NOT_FINITE, RING
from edgequant.graph.launch import Call, Kind
from edgequant.graph.norms import absorb_norms
from edgequant.graph.plan import Plan
from edgequant.graph.trim import trim

AHEAD = 3  # steps in flight while tokens are generated: the host may be late by two of them
LOGITS_BYTES = 64 << 20  # of a step at most; more rows take more steps


class GpuProgram:
    """A graph with its weights on a GPU; all that `protocol.py` has of programs."""

    def __init__(
        self,
        gpu: Gpu,
        name: str,
        graph: Graph,
        weights: Weights,
        *,
        context: int,
        cache: BlockType,
        exact: bool,
    ) -> None:
        self.context = context
        self._gpu = gpu
        self._weights = weights  # what was adopted must stay mapped
        types = {tensor: weights[tensor].type for tensor in graph.weights}
        graph = trim(fuse(graph, types))
        alone = graph if exact else absorb_norms(graph, types, gpu.limits)
        vocab = graph.nodes[-1].output.shape[-1]
        assert isinstance(vocab, int), "the last axis of the logits is the vocabulary"
        self._vocab = vocab
        self._batches = batches(context)
        self._rows = tuple(n for n in self._batches if n * 4 * vocab <= LOGITS_BYTES or n == 1)
        self._watched = purposes.watch(graph)
        self._resident = Resident(gpu)
        try:
            columns = sum(entry.columns for entry in self._watched)
            self._ring = self._resident.alloc(4 * RING, Place.READBACK)
            self._sums = self._resident.alloc(4 * columns)
            self._run, self._fill, self._generate = (
                replace(make(graph, exact=exact), alone=make(alone, exact=exact))
                for make in (
                    purposes.run, purposes.fill, partial(purposes.generate, ring=self._ring)
                )
            )  # fmt: skip
            self._observe = purposes.observe(graph, self._watched, self._sums)
            call = Call(1, 1, context, context, (), cache, gpu.limits)
            with Arrival(
                self._resident, gpu, name, graph, weights, context=context, cache=cache
            ) as arrival:
                # Decode first: its kernels compile while the rest is planned and weights arrive.
                first = Bucket(1, 1, context_of(1, context))
                decode = plan_bucket(self._generate, first, call, types)
                gpu.prepare([(m.launch.kernel, m.launch.constants) for m in decode.launches])
                plans = [decode, *self._plan_largest(call, types)]
                self._places = arrival.settle(
                    batch=self._batches[-1],
                    arena=max(plan.nbytes for plan in plans),
                    tables={content for plan in plans for content in _tables(plan)},
                )
            self._recorder = Recorder(gpu, call, types, self._places)
            self._recorder.record(self._generate, first, planned=decode)
        except BaseException:
            self._resident.close()
            raise

    def run(self, tokens: Tokens, past: int, *, rows: int = 1) -> Floats:
        """Feed tokens and return the logits of the last `rows`; see `Program`."""
        ids = self._checked(tokens, past, rows)
        first = len(ids) - rows  # whose logits are wanted
        found = []
        start = 0
        while start < len(ids):
            stop = start + next(cut(len(ids) - start, self._batches))
            if stop > first:
                stop = min(stop, max(start, first) + self._rows[-1])
            wanted = max(0, stop - max(start, first))
            recorded = self._submit(ids[start:stop], past + start, wanted)
            if wanted:
                found.append(self._logits(recorded, wanted))
            start = stop
        if len(found) == 1:
            return found[0]
        return np.concatenate([np.empty((0, self._vocab), np.float32), *found])

    def observe(self, tokens: Tokens, past: int) -> Mapping[str, Sums]:
        """Feed tokens and return the sums of each linear's input; see `Observer`."""
        ids = self._checked(tokens, past, 1)
        self._gpu.write(self._sums.buffer, bytes(self._sums.nbytes))
        start = 0
        for length in cut(len(ids), self._batches):
            self._write(ids[start : start + length], past + start, length)
            size = smallest(length, self._batches)
            bucket = Bucket(size, size, context_of(past + start + length, self.context))
            self._gpu.submit(self._recorder.record(self._observe, bucket).recording)
            start += length
        content = self._gpu.read(self._sums.buffer, self._sums.nbytes)
        sums = np.frombuffer(content, np.float32)
        return {
            name: Sums(sums[entry.offset : entry.offset + entry.columns], len(ids))
            for entry in self._watched
            for name in entry.names
        }

    def generate(self, token: int, past: int, count: int, sampling: Sampling) -> Iterator[int]:
        """Feed `token` and yield sampled tokens, each fed in turn; see `Generator`.

        Some steps are submitted before their tokens are asked for; closing the iterator waits for
        them, and what they put into the KV cache is forgotten by whoever counts `past`.

        Raises:
            FloatingPointError: a logit is not finite.
        """
        self._checked(np.array([token], np.int32), past, 1)
        count = min(count, self.context - past)
        self._write(np.array([token], np.int32), past, 1, sampling)
        flying: deque[Ticket] = deque()
        submitted = until = 0
        try:
            for index in range(count):
                while submitted < min(count, index + AHEAD):
                    if past + submitted >= until:
                        until = context_of(past + submitted + 1, self.context)
                        kept = self._recorder.record(self._generate, Bucket(1, 1, until))
                    flying.append(self._gpu.submit(kept.recording))
                    submitted += 1
                self._gpu.wait(flying.popleft())
                place = 4 * (index % RING)
                drawn = int.from_bytes(self._gpu.peek(self._ring.buffer, 4, place), "little")
                if drawn == NOT_FINITE:
                    raise FloatingPointError("a logit is not finite")
                yield drawn
        finally:
            for ticket in flying:
                self._gpu.wait(ticket)

    def profile(self, tokens: Tokens, past: int) -> Sequence[Timing]:
        """Feed tokens of one step and time each kernel; see `Profiler`."""
        ids = self._checked(tokens, past, 1)
        self._write(ids, past, 1)
        seen = past + len(ids)
        bucket = Bucket(smallest(len(ids), self._batches), 1, context_of(seen, self.context))
        recorded = self._recorder.record(self._run, bucket, timed=True)
        seconds = self._gpu.wait(self._gpu.submit(recorded.recording))
        return tell(recorded, seconds, self._weights, len(ids), seen / self.context)

    def ceilings(self) -> Ceilings:
        """Measure the GPU on the largest matrix; see `Profiler`."""
        largest = max(self._places.weights.values(), key=lambda span: span.nbytes)
        return measure_ceilings(self._gpu, largest, self._sums)

    def repertoire(self) -> Repertoire:
        """Record every step that text is made of, with one row of logits at most."""
        buckets = [
            Bucket(size, 1, context) for size in self._batches for context in contexts(self.context)
        ]
        return Repertoire(
            self._places,
            self._ring,
            {bucket: self._recorder.record(self._fill, bucket) for bucket in buckets},
            {bucket: self._recorder.record(self._generate, bucket) for bucket in buckets},
        )

    def close(self) -> None:
        """Give its memory back, once nothing uses it."""
        try:
            self._gpu.read(self._places.step.buffer, STEP.itemsize)  # waits for what is in flight
        finally:
            self._recorder.close()
            self._resident.close()

    def _plan_largest(self, call: Call, types: Mapping[str, BlockType]) -> list[Plan]:
        """Plan the largest recordings of each batch size, from which follows the arena.

        To generate a token takes all that logits of one token take.
        """
        largest = self._batches[-1]
        wanted = [(self._generate, 1, 1), (self._observe, largest, largest)]
        wanted += [(self._run, size, min(size, self._rows[-1])) for size in self._batches[1:]]
        return [
            plan_bucket(purpose, Bucket(tokens, rows, self.context), call, types)
            for purpose, tokens, rows in wanted
        ]

    def _checked(self, tokens: Tokens, past: int, rows: int) -> Tokens:
        count = len(tokens)
        if not (past >= 0 and 0 <= rows <= count and 0 < count <= self.context - past):
            raise ValueError(
                f"{count} tokens after {past}, {rows} rows, in a context of {self.context}"
            )
        return np.ascontiguousarray(tokens, np.int32)

    def _submit(self, ids: Tokens, past: int, rows: int) -> Recorded:
        """Start a step that computes the logits of the last `rows` of the tokens; 0: none."""
        self._write(ids, past, max(1, rows))
        purpose: Purpose = self._run if rows else self._fill
        bucket = Bucket(
            smallest(len(ids), self._batches),
            smallest(rows, self._rows) if rows else 1,
            context_of(past + len(ids), self.context),
        )
        recorded = self._recorder.record(purpose, bucket)
        self._gpu.submit(recorded.recording)
        return recorded

    def _write(self, ids: Tokens, past: int, rows: int, sampling: Sampling | None = None) -> None:
        """Write the step record and the ids."""
        step = np.zeros((), STEP)
        step["past"], step["tokens"], step["rows"] = past, len(ids), rows
        if sampling is not None:
            seed = secrets.randbits(32) if sampling.seed is None else sampling.seed
            step["seed"] = seed % 2**32
            for name in ("temperature", "top_k", "top_p", "min_p"):
                step[name] = getattr(sampling, name)
        self._gpu.write(self._places.step.buffer, step.tobytes())
        self._gpu.write(self._places.tokens.buffer, ids.tobytes())

    def _logits(self, recorded: Recorded, rows: int) -> Floats:
        """Read the logits of a step that was submitted."""
        span = recorded.output
        assert span is not None, "logits lie in the arena"
        content = self._gpu.read(span.buffer, 4 * rows * self._vocab, span.offset)
        return np.frombuffer(content, np.float32).reshape(rows, self._vocab)


def _tables(plan: Plan) -> Iterator[bytes]:
    for placed in plan.launches:
        for operand in placed.launch.operands:
            if operand.kind is Kind.TABLE:
                yield operand.content
