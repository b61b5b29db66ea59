"""From tasks to launches with places: what runs for one bucket, and where in one arena it works.

Every value, scratch and derived operand gets an offset in one arena, so that no two that are alive
at a time share a byte. Weights, the KV cache, the step record and tables lie elsewhere; whoever
records knows where. A launch that would only derive what is there already is left out, and a task
that launches nothing passes its input on. It knows ops by their launches, and no GPU.
"""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from edgequant.blocks import BlockType
from edgequant.errors import UnsupportedError
from edgequant.graph.graph import ROWS, TOKENS, Graph, Node, Value
from edgequant.graph.launch import Call, Kind, Launch, Operand
from edgequant.graph.op import Launchable, Op
from edgequant.graph.ops.rows import Rows

ALIGNMENT = 256  # bytes; no kernel loads wider, and a cache line is not shared
Launcher = Callable[[Call], tuple[Launch, ...]]


@dataclass(frozen=True)
class Task:
    """Something that launches kernels: a node of a graph, or what is appended to one.

    Attributes:
        label: what profiles call it.
        launch: as of `Launchable`.
        inputs: values of earlier tasks.
        output: its own.
        weights: names.
    """

    label: str
    launch: Launcher
    inputs: tuple[Value, ...]
    output: Value
    weights: tuple[str, ...] = ()


@dataclass(frozen=True)
class Room:
    """A place in the arena."""

    offset: int
    nbytes: int


@dataclass(frozen=True)
class Placed:
    """A launch of a task, with a room for each operand; None for what is not in the arena."""

    task: Task
    launch: Launch
    rooms: tuple[Room | None, ...]


@dataclass(frozen=True)
class Plan:
    """What to record.

    Attributes:
        launches: in order.
        values: rooms by value number.
        nbytes: of the arena.
    """

    launches: tuple[Placed, ...]
    values: Mapping[int, Room]
    nbytes: int


@dataclass(frozen=True)
class Lifetime:
    """Bytes that must keep their content from task `first` through task `last`."""

    nbytes: int
    first: int
    last: int


def tasks_of(graph: Graph) -> tuple[Task, ...]:
    """Return the nodes as tasks; those of equal ops have one launcher."""
    launchers: dict[Op, Launcher] = {}
    for node in graph.nodes:
        if node.op not in launchers:
            launchers[node.op] = _launcher(node.op)
    return tuple(_task(node, launchers[node.op]) for node in graph.nodes)


def plan(
    tasks: Sequence[Task],
    bucket: Call,
    types: Mapping[str, BlockType],
    outside: Collection[int] = (),
) -> Plan:
    """Plan a recording.

    Args:
        tasks: in order.
        bucket: the call, without what differs between tasks: weights, inputs and wants.
        types: block types of the weights.
        outside: numbers of values that the caller places.

    Raises:
        UnsupportedError: an op has no kernel for this; named after the task's first weight.
    """
    shapes = {task.output.number: _shape(task.output, bucket) for task in tasks}
    launches = _left(_launch(tasks, bucket, types, shapes))
    elsewhere = {(Kind.OUTPUT, number, 0) for number in outside}
    spans: dict[_Key, Lifetime] = {}
    for index, launch, keys in launches:
        for operand, key in zip(launch.operands, keys, strict=True):
            if key is not None and key not in elsewhere:
                nbytes = operand.nbytes or 4 * prod(shapes[key[1]])
                begun = spans.get(key)
                spans[key] = (
                    Lifetime(nbytes, index, index)
                    if begun is None
                    else Lifetime(max(nbytes, begun.nbytes), begun.first, index)
                )
    offsets, total = arrange(list(spans.values()))
    rooms: dict[_Key | None, Room] = {
        key: Room(offset, lifetime.nbytes)
        for offset, (key, lifetime) in zip(offsets, spans.items(), strict=True)
    }
    placed = tuple(
        Placed(tasks[index], launch, tuple(map(rooms.get, keys)))
        for index, launch, keys in launches
    )
    values = {key[1]: room for key, room in rooms.items() if key and key[0] is Kind.OUTPUT}
    return Plan(placed, values, total)


def arrange(lifetimes: Sequence[Lifetime]) -> tuple[list[int], int]:
    """Return an offset for each lifetime, and the bytes of the arena.

    In order of their beginning, each takes the lowest gap that holds it: layers that are alike then
    get the same offsets. The lifetimes must be in that order.
    """
    live: list[tuple[int, int, int]] = []  # offset, end, last
    offsets, total, now = [], 0, 0
    for lifetime in lifetimes:
        if lifetime.first < now:
            raise ValueError("lifetimes must come in the order of their beginning")
        now = lifetime.first
        live = [entry for entry in live if entry[2] >= now]
        size = -(-lifetime.nbytes // ALIGNMENT) * ALIGNMENT
        offset = 0
        for begin, end, _ in live:
            if offset + size <= begin:
                break
            offset = max(offset, end)
        live.append((offset, offset + size, lifetime.last))
        live.sort()
        offsets.append(offset)
        total = max(total, offset + size)
    return offsets, total


# What an operand in the arena is: OUTPUT and the value's number; DERIVED, the number of the value
# it is made of and the tag; SCRATCH, minus one less the task's index, and the scratch's number.
_Key = tuple[Kind, int, int | str]


_Answer = tuple[tuple[Launch, ...], list[tuple[int, Operand]]]
_Asked = tuple[int, Launch, tuple[_Key | None, ...]]  # of a task's index, with the operands' keys


def _key(task: Task, index: int, operand: Operand) -> _Key | None:
    kind = operand.kind
    if kind is Kind.INPUT:
        return Kind.OUTPUT, task.inputs[operand.index].number, 0
    if kind is Kind.OUTPUT:
        return Kind.OUTPUT, task.output.number, 0
    if kind is Kind.DERIVED:
        value = task.output if operand.index < 0 else task.inputs[operand.index]
        return Kind.DERIVED, value.number, operand.tag
    if kind is Kind.SCRATCH:
        return Kind.SCRATCH, -1 - index, operand.index
    return None


def _launch(
    tasks: Sequence[Task],
    bucket: Call,
    types: Mapping[str, BlockType],
    shapes: Mapping[int, tuple[int, ...]],
) -> list[_Asked]:
    """Ask each task for its launches, the last first, so that each hears what is derived of it."""
    wants: dict[int, dict[str, Operand]] = {task.output.number: {} for task in tasks}
    found: list[_Asked] = []
    answers: dict[Hashable, _Answer] = {}  # layers are alike, and launch alike
    passed: dict[int, int] = {}  # from the output to the input of a task that launches nothing
    for index, task in reversed(list(enumerate(tasks))):
        weights = tuple(types[name] for name in task.weights)
        inputs = tuple(shapes[value.number] for value in task.inputs)
        wanted = tuple(wants[task.output.number].values())
        question = (task.launch, weights, inputs, wanted)
        if question not in answers:
            call = replace(bucket, weights=weights, inputs=inputs, wants=wanted)
            answers[question] = _answer(_ask(task, call))
        launches, derived = answers[question]
        if not launches and task.inputs:
            passed[task.output.number] = task.inputs[0].number
            wants[task.inputs[0].number] |= wants[task.output.number]
        found.extend(
            (index, launch, tuple(_key(task, index, o) for o in launch.operands))
            for launch in reversed(launches)
        )
        for source, operand in derived:
            wants[task.inputs[source].number][operand.tag] = operand
    return [
        (index, launch, tuple(_follow(key, passed) for key in keys))
        for index, launch, keys in reversed(found)
    ]


def _answer(launches: tuple[Launch, ...]) -> _Answer:
    """Add what is derived of inputs: of which, and what may be wanted of whoever makes it."""
    derived = [
        (operand.index, replace(operand, index=-1))
        for launch in reversed(launches)
        for operand in launch.operands
        if operand.kind is Kind.DERIVED and operand.index >= 0 and operand.writes
    ]
    return launches, derived


def _follow(key: _Key | None, passed: Mapping[int, int]) -> _Key | None:
    if key is None or key[1] not in passed:
        return key
    return _follow((key[0], passed[key[1]], key[2]), passed)


def _ask(task: Task, call: Call) -> tuple[Launch, ...]:
    try:
        return task.launch(call)
    except UnsupportedError as error:
        if not task.weights:
            raise
        raise UnsupportedError(f"{task.weights[0]}: {error.what}", hint=error.hint) from None


def _left(launches: Sequence[_Asked]) -> list[_Asked]:
    """Return what is to be launched: nothing is derived twice."""
    made: set[_Key | None] = set()
    left = []
    for asked in launches:
        _, launch, keys = asked
        pairs = zip(launch.operands, keys, strict=True)
        written = {key for operand, key in pairs if operand.writes}
        if written <= made and all(key and key[0] is Kind.DERIVED for key in written):
            continue
        made |= written
        left.append(asked)
    return left


def _shape(value: Value, bucket: Call) -> tuple[int, ...]:
    lengths = {TOKENS: bucket.tokens, ROWS: bucket.rows}
    return tuple(n if isinstance(n, int) else lengths[n] for n in value.shape)


def _of_several(launch: Launcher) -> Launcher:
    """Launch nothing for a single token: the rows that are wanted of it are itself."""
    return lambda call: launch(call) if call.tokens > 1 else ()


def _launcher(op: Op) -> Launcher:
    if not isinstance(op, Launchable):
        raise TypeError(f"{op} has no kernels: fuse the graph first")
    return _of_several(op.launch) if isinstance(op, Rows) else op.launch


def _task(node: Node, launcher: Launcher) -> Task:
    names = [name.removesuffix(".weight").split(".")[-1] for name in node.weights]
    label = "+".join(dict.fromkeys(names)) or type(node.op).__name__
    label = getattr(node.op, "label", label)
    return Task(label, launcher, node.inputs, node.output, node.weights)
