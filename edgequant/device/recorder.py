"""Makes the recordings of a program: plans a bucket, binds its launches, keeps what it recorded.

All memory is there before: the arena was sized for the largest bucket. It knows tasks and buffers;
what a step is for is the business of `program.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from edgequant.blocks import BlockType
from edgequant.device.bind import bind
from edgequant.device.buckets import Bucket
from edgequant.device.protocol import Gpu, Recording
from edgequant.graph.launch import Call, Dispatch, Kind, Operand, Span
from edgequant.graph.plan import Placed, Plan, Room, Task, plan


@dataclass(frozen=True)
class Purpose:
    """What a recording is for.

    Attributes:
        name: of it among the recordings.
        tasks: in order.
        outside: the memory of values that are not in the arena, by number.
        exact: keep activations in float32.
        alone: the same for a single token, where that is done otherwise.
    """

    name: str
    tasks: tuple[Task, ...]
    outside: Mapping[int, Span]
    exact: bool
    alone: "Purpose | None" = None

    def of(self, bucket: Bucket) -> "Purpose":
        """Return how it is done for a bucket."""
        return self.alone if self.alone is not None and bucket.tokens == 1 else self


@dataclass(frozen=True)
class Places:
    """Where everything lies that is not in the arena.

    Attributes:
        weights: by name.
        keys: of the KV cache, by layer.
        values: of the KV cache, by layer.
        step: the step record.
        tokens: the ids of a step.
        tables: by content.
        arena: of activations and scratch.
    """

    weights: Mapping[str, Span]
    keys: Mapping[int, Span]
    values: Mapping[int, Span]
    step: Span
    tokens: Span
    tables: Mapping[bytes, Span]
    arena: Span


@dataclass(frozen=True)
class Recorded:
    """A recording, what was planned and bound for it, and where the last task leaves its output."""

    recording: Recording
    launches: tuple[Placed, ...]
    dispatches: tuple[Dispatch, ...]
    output: Span | None


@dataclass(frozen=True)
class Repertoire:
    """All that a program can be asked to play while it makes text.

    Attributes:
        places: where everything lies.
        ring: where drawn tokens appear.
        fills: recordings that put tokens into the KV cache, and no more.
        draws: recordings that put tokens into it, and draw the next one.
    """

    places: Places
    ring: Span
    fills: Mapping[Bucket, Recorded]
    draws: Mapping[Bucket, Recorded]


class Recorder:
    """The recordings of one program on one GPU.

    Args:
        gpu: where.
        call: what all recordings have in common: capacity, cache and limits.
        types: block types of the weights.
        places: see there.
    """

    def __init__(
        self, gpu: Gpu, call: Call, types: Mapping[str, BlockType], places: Places
    ) -> None:
        self._gpu = gpu
        self._call = call
        self._types = types
        self._places = places
        self._kept: dict[tuple[str, Bucket, bool], Recorded] = {}

    def record(
        self,
        purpose: Purpose,
        bucket: Bucket,
        *,
        timed: bool = False,
        planned: Plan | None = None,
    ) -> Recorded:
        """Return the recording of a purpose for a bucket; made at the first asking, then kept.

        Args:
            purpose: what for.
            bucket: its sizes.
            timed: with a clock.
            planned: its plan, if it is known.
        """
        key = (purpose.name, bucket, timed)
        purpose = purpose.of(bucket)
        if key not in self._kept:
            planned = planned or plan_bucket(purpose, bucket, self._call, self._types)
            self._kept[key] = self._record(purpose, bucket, planned, timed)
        return self._kept[key]

    def close(self) -> None:
        """Discard all recordings."""
        for kept in self._kept.values():
            self._gpu.discard(kept.recording)
        self._kept.clear()

    def _record(self, purpose: Purpose, bucket: Bucket, planned: Plan, timed: bool) -> Recorded:
        arena = self._places.arena
        if planned.nbytes > arena.nbytes:
            raise ValueError(
                f"{purpose.name} {bucket} wants {planned.nbytes} bytes of {arena.nbytes}: "
                "a kernel's scratch must not grow when the bucket shrinks"
            )
        dispatches = tuple(self._bind(placed, purpose.outside) for placed in planned.launches)
        output = planned.values.get(purpose.tasks[-1].output.number)
        return Recorded(
            self._gpu.record(dispatches, timed=timed),
            planned.launches,
            dispatches,
            None if output is None else _within(arena, output),
        )

    def _bind(self, placed: Placed, outside: Mapping[int, Span]) -> Dispatch:
        task, places = placed.task, self._places
        rooms = iter(placed.rooms)

        def resolve(operand: Operand) -> Span:
            room = next(rooms)
            if room is not None:
                return _within(places.arena, room)
            match operand.kind:
                case Kind.WEIGHT:
                    return places.weights[task.weights[operand.index]]
                case Kind.KEYS:
                    return places.keys[operand.index]
                case Kind.VALUES:
                    return places.values[operand.index]
                case Kind.STEP:
                    return places.step
                case Kind.TOKENS:
                    return places.tokens
                case Kind.TABLE:
                    return places.tables[operand.content]
                case Kind.INPUT:
                    return outside[task.inputs[operand.index].number]
            return outside[task.output.number]

        return bind(placed.launch, resolve, self._gpu.address, task.label)


def plan_bucket(
    purpose: Purpose, bucket: Bucket, call: Call, types: Mapping[str, BlockType]
) -> Plan:
    """Plan a purpose for a bucket; `call` is what all of them have in common."""
    purpose = purpose.of(bucket)
    bound = replace(
        call,
        tokens=bucket.tokens,
        rows=bucket.rows,
        context=bucket.context,
        exact=purpose.exact,
    )
    return plan(purpose.tasks, bound, types, purpose.outside)


def _within(arena: Span, room: Room) -> Span:
    return Span(arena.buffer, arena.offset + room.offset, room.nbytes)
