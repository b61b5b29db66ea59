"""From tasks to launches with places: what runs for one bucket, and where in one arena it works.

Every value, scratch and derived operand gets an offset in one arena, so that no two that are alive
at a time share a byte. Weights, the KV cache, the step record and tables lie elsewhere; whoever
records knows where. A launch that would only derive what is there already is left out. It knows
ops by their launches, and no GPU.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from edgequant.blocks import BlockType
from edgequant.errors import UnsupportedError
from edgequant.graph.graph import ROWS, TOKENS, Graph, Node, Value
from edgequant.graph.launch import Call, Kind, Launch, Operand
from edgequant.graph.op import Launchable

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
    """Return the nodes as tasks."""
    return tuple(_task(node) for node in graph.nodes)


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
    launches = _left(tasks, _launch(tasks, bucket, types))
    elsewhere = {(Kind.OUTPUT, number, 0) for number in outside}
    spans: dict[_Key, Lifetime] = {}
    for index, launch in launches:
        for operand in launch.operands:
            key = _key(tasks, index, operand)
            if key is not None and key not in elsewhere:
                nbytes = operand.nbytes or 4 * prod(_shape(_value(tasks[index], operand), bucket))
                begun = spans.get(key, Lifetime(0, index, index))
                spans[key] = Lifetime(max(nbytes, begun.nbytes), begun.first, index)
    offsets, total = arrange(list(spans.values()))
    rooms: dict[_Key | None, Room] = {
        key: Room(offset, lifetime.nbytes)
        for offset, (key, lifetime) in zip(offsets, spans.items(), strict=True)
    }
    placed = (
        Placed(
            tasks[index],
            launch,
            tuple(rooms.get(_key(tasks, index, operand)) for operand in launch.operands),
        )
        for index, launch in launches
    )
    values = {key[1]: room for key, room in rooms.items() if key and key[0] is Kind.OUTPUT}
    return Plan(tuple(placed), values, total)


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


def _key(tasks: Sequence[Task], index: int, operand: Operand) -> _Key | None:
    match operand.kind:
        case Kind.INPUT | Kind.OUTPUT:
            return Kind.OUTPUT, _value(tasks[index], operand).number, 0
        case Kind.DERIVED:
            return Kind.DERIVED, _value(tasks[index], operand).number, operand.tag
        case Kind.SCRATCH:
            return Kind.SCRATCH, -1 - index, operand.index
    return None


def _value(task: Task, operand: Operand) -> Value:
    """Return the value that an operand is, or is made of."""
    derived_of_output = operand.kind is Kind.DERIVED and operand.index < 0
    return (
        task.output
        if operand.kind is Kind.OUTPUT or derived_of_output
        else task.inputs[operand.index]
    )


def _launch(
    tasks: Sequence[Task], bucket: Call, types: Mapping[str, BlockType]
) -> list[tuple[Launch, ...]]:
    """Ask each task for its launches, the last first, so that each hears what is derived of it."""
    wants: dict[int, dict[str, Operand]] = {task.output.number: {} for task in tasks}
    found: list[tuple[Launch, ...]] = []
    for task in reversed(tasks):
        call = replace(
            bucket,
            weights=tuple(types[name] for name in task.weights),
            inputs=tuple(_shape(value, bucket) for value in task.inputs),
            wants=tuple(wants[task.output.number].values()),
        )
        try:
            found.append(task.launch(call))
        except UnsupportedError as error:
            if not task.weights:
                raise
            raise UnsupportedError(f"{task.weights[0]}: {error.what}", hint=error.hint) from None
        for operand in _operands(found[-1]):
            if operand.kind is Kind.DERIVED and operand.index >= 0 and operand.writes:
                value = task.inputs[operand.index]
                wants[value.number][operand.tag] = replace(operand, index=-1)
    return found[::-1]


def _left(
    tasks: Sequence[Task], launches: Sequence[tuple[Launch, ...]]
) -> list[tuple[int, Launch]]:
    """Return what is to be launched, with the index of its task; nothing is derived twice."""
    made: set[_Key | None] = set()
    left = []
    for index, of_task in enumerate(launches):
        for launch in of_task:
            written = [operand for operand in launch.operands if operand.writes]
            keys = {_key(tasks, index, operand) for operand in written}
            if all(operand.kind is Kind.DERIVED for operand in written) and keys <= made:
                continue
            made |= keys
            left.append((index, launch))
    return left


def _operands(launches: Iterable[Launch]) -> Iterable[Operand]:
    return (operand for launch in launches for operand in launch.operands)


def _shape(value: Value, bucket: Call) -> tuple[int, ...]:
    lengths = {TOKENS: bucket.tokens, ROWS: bucket.rows}
    return tuple(n if isinstance(n, int) else lengths[n] for n in value.shape)


def _task(node: Node) -> Task:
    if not isinstance(node.op, Launchable):
        raise TypeError(f"{node.op} has no kernels: fuse the graph first")
    names = [name.removesuffix(".weight").split(".")[-1] for name in node.weights]
    label = "+".join(dict.fromkeys(names)) or type(node.op).__name__
    return Task(label, node.op.launch, node.inputs, node.output, node.weights)
