"""No two things that are alive at a time share a byte, and nothing is derived twice."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgequant.blocks import BLOCK_TYPES
from edgequant.errors import UnsupportedError
from edgequant.graph import ROWS, TOKENS, Graph, Node, Value
from edgequant.graph.launch import Call, Kind, Launch, Limits, Operand
from edgequant.graph.ops.embed import Embed
from edgequant.graph.ops.fused_linear import FusedLinear
from edgequant.graph.ops.gate import Gate
from edgequant.graph.ops.linear import Linear
from edgequant.graph.ops.rotate_attend import RotateAttend
from edgequant.graph.ops.rotate_store import RotateStore
from edgequant.graph.ops.rows import Rows
from edgequant.graph.plan import ALIGNMENT, Lifetime, Plan, Task, arrange, plan, tasks_of

F32 = BLOCK_TYPES["F32"]
LIMITS = Limits(32, 256, 32768, 1 << 30, None, integer_dot=True)
CALL = Call(tokens=8, rows=2, context=64, capacity=64, weights=(), cache=F32, limits=LIMITS)
WRITTEN = Operand(Kind.OUTPUT, reads=False, writes=True)


def launch(kernel: str, *operands: Operand) -> Launch:
    return Launch(kernel, operands, b"", (1, 1, 1))


@dataclasses.dataclass(frozen=True)
class Kernels:
    """Launches that read all inputs, by way of scratch and of something derived if asked."""

    inputs: int
    scratch: int = 0
    tag: str = ""
    helpful: bool = False  # writes what is wanted of its output

    def __call__(self, call: Call) -> tuple[Launch, ...]:
        assert len(call.inputs) == self.inputs
        found = []
        operands = [Operand(Kind.INPUT, i) for i in range(self.inputs)]
        if self.tag:
            tokens, columns = call.inputs[0]
            derived = Operand(Kind.DERIVED, 0, nbytes=tokens * columns, tag=self.tag)
            written = dataclasses.replace(derived, reads=False, writes=True)
            found.append(launch("derive", Operand(Kind.INPUT), written))
            operands.append(derived)
        if self.scratch:
            scratch = Operand(Kind.SCRATCH, nbytes=self.scratch)
            written = dataclasses.replace(scratch, reads=False, writes=True)
            found.append(launch("prepare", *operands, written))
            operands.append(scratch)
        wanted = call.wants if self.helpful else ()
        return (*found, launch("compute", *operands, WRITTEN, *wanted))


def task(number: int, kernels: Kernels, *inputs: Value, columns: int = 300) -> Task:
    return Task(f"t{number}", kernels, inputs, Value(number, (TOKENS, columns)))


def replay(made: Plan, tasks: list[Task]) -> None:
    """Run the launches on an arena that knows what was written last in each cell."""
    cells: list[object] = [None] * (made.nbytes // ALIGNMENT)
    for placed in made.launches:
        index = tasks.index(placed.task)
        for writing in (False, True):
            for operand, room in zip(placed.launch.operands, placed.rooms, strict=True):
                assert room is not None
                assert room.offset % ALIGNMENT == 0
                assert room.offset + room.nbytes <= made.nbytes
                if operand.kind is Kind.SCRATCH:
                    what: object = (index, operand.index)
                elif operand.kind is Kind.OUTPUT or operand.index < 0:
                    what = (operand.tag, placed.task.output.number)
                else:
                    source = tasks[placed.task.inputs[operand.index].number]
                    while source.label == "rows":
                        source = tasks[source.inputs[0].number]
                    what = (operand.tag, source.output.number)
                size = -(-room.nbytes // ALIGNMENT)
                inside = slice(room.offset // ALIGNMENT, room.offset // ALIGNMENT + size)
                if writing and operand.writes:
                    cells[inside] = [what] * size
                elif not writing and operand.reads:
                    assert cells[inside] == [what] * size, f"{placed.task.label} reads {what}"


entries = st.tuples(
    st.lists(st.integers(0, 12), max_size=3),  # inputs, counted backwards
    st.sampled_from((0, 1, 700)),
    st.sampled_from(("", "", "q8", "half")),
    st.booleans(),
    st.sampled_from((1, 64, 300, 1000)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(entries, min_size=1, max_size=25))
def test_random_graphs_read_what_was_written(
    drawn: list[tuple[list[int], int, str, bool, int]],
) -> None:
    tasks: list[Task] = []
    for number, (backwards, scratch, tag, helpful, columns) in enumerate(drawn):
        inputs = [tasks[-1 - min(b, number - 1)].output for b in backwards if number]
        kernels = Kernels(len(inputs), scratch, tag if inputs else "", helpful)
        tasks.append(task(number, kernels, *inputs, columns=columns))
    made = plan(tasks, CALL, {})
    replay(made, tasks)
    assert [p.task for p in made.launches if p.launch.kernel == "compute"] == tasks
    derived = [
        (p.task.inputs[0].number, o.tag)
        for p in made.launches
        for o in p.launch.operands
        if p.launch.kernel == "derive" and o.tag
    ]
    assert len(derived) == len(set(derived))


@given(st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 9), st.integers(0, 9)), max_size=40))
def test_lifetimes_that_meet_do_not_overlap(drawn: list[tuple[int, int, int]]) -> None:
    lifetimes = sorted(
        (Lifetime(nbytes, min(a, b), max(a, b)) for nbytes, a, b in drawn), key=lambda x: x.first
    )
    offsets, total = arrange(lifetimes)
    placed = list(zip(offsets, lifetimes, strict=True))
    for i, (offset, a) in enumerate(placed):
        assert offset % ALIGNMENT == 0
        assert offset + a.nbytes <= total
        for other, b in placed[:i]:
            apart = offset + a.nbytes <= other or other + b.nbytes <= offset
            assert apart or a.last < b.first or b.last < a.first


def test_lifetimes_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="order of their beginning"):
        arrange([Lifetime(1, 1, 1), Lifetime(1, 0, 0)])


def test_a_chain_reuses_two_rooms() -> None:
    tasks = [task(0, Kernels(0))]
    for number in range(1, 9):
        tasks.append(task(number, Kernels(1), tasks[-1].output))
    size = -(-8 * 300 * 4 // ALIGNMENT) * ALIGNMENT
    assert plan(tasks, CALL, {}).nbytes == 2 * size


def test_what_is_wanted_is_written_by_its_maker_or_once() -> None:
    def kernels(made: Plan) -> list[str]:
        return [placed.launch.kernel for placed in made.launches]

    for helpful in (False, True):
        x = task(0, Kernels(0, helpful=helpful))
        three = [task(n, Kernels(1, tag="q8"), x.output) for n in (1, 2, 3)]
        made = plan([x, *three], CALL, {})
        derive = [] if helpful else ["derive"]
        assert kernels(made) == ["compute", *derive, "compute", "compute", "compute"]
        places = {
            room
            for placed in made.launches
            for operand, room in zip(placed.launch.operands, placed.rooms, strict=True)
            if operand.kind is Kind.DERIVED
        }
        assert len(places) == 1


def test_values_outside_have_no_room_and_axes_are_bound() -> None:
    seen: list[Call] = []

    def watching(call: Call) -> tuple[Launch, ...]:
        seen.append(call)
        return Kernels(1)(call)

    x = task(0, Kernels(0))
    rows = Task("rows", watching, (x.output,), Value(1, (ROWS, 5)), ("w",))
    last = Task("last", watching, (rows.output,), Value(2, (5,)))
    made = plan([x, rows, last], CALL, {"w": F32}, outside=[2])
    assert made.launches[-1].rooms[1] is None
    assert set(made.values) == {0, 1}
    assert made.values[1].nbytes == 2 * 5 * 4
    assert [call.inputs for call in seen] == [((2, 5),), ((8, 300),)]
    assert seen[1].weights == (F32,)


def test_a_task_that_launches_nothing_passes_its_input_on() -> None:
    x = task(0, Kernels(0, helpful=True))
    through = Task("rows", lambda _call: (), (x.output,), Value(1, (TOKENS, 300)))
    again = Task("rows", lambda _call: (), (through.output,), Value(2, (TOKENS, 300)))
    user = task(3, Kernels(1, tag="q8"), again.output)
    made = plan([x, through, again, user], CALL, {})
    replay(made, [x, through, again, user])
    assert [placed.launch.kernel for placed in made.launches] == ["compute", "compute"]
    assert set(made.values) == {0, 3}


def test_rows_of_one_token_are_not_copied() -> None:
    graph = Graph()
    graph.add(Rows(), graph.add(Embed(4), weight="token_embd.weight"))
    types = {"token_embd.weight": F32}
    for tokens, expected in ((1, ["embed_f32"]), (2, ["embed_f32", "rows"])):
        call = dataclasses.replace(CALL, tokens=tokens, rows=1)
        made = plan(tasks_of(graph), call, types)
        assert [placed.launch.kernel for placed in made.launches] == expected


def test_an_op_without_a_kernel_is_named() -> None:
    def refusing(call: Call) -> tuple[Launch, ...]:
        raise UnsupportedError("Q1_0 has no kernel.", hint="use --device cpu.")

    bad = Task("ffn_up", refusing, (), Value(0, (TOKENS, 4)), ("blk.0.ffn_up.weight",))
    with pytest.raises(UnsupportedError, match=r"^blk.0.ffn_up.weight: Q1_0 has no kernel"):
        plan([bad], CALL, {"blk.0.ffn_up.weight": F32})


def test_a_graph_that_was_not_fused_is_refused() -> None:
    graph = Graph()
    x = graph.add(Embed(4), weight="token_embd.weight")
    graph.add(Linear(4, 4), x, weight="output.weight")
    with pytest.raises(TypeError, match="fuse the graph first"):
        tasks_of(graph)


def test_a_task_is_called_after_its_weights_or_its_op() -> None:
    x = Value(0, (TOKENS, 8))
    rotate = RotateStore(0, 2, 1, 4, 1e4, interleaved=False, frequencies=True)
    nodes = [
        Node(
            FusedLinear(8, 4, gated=True), (x,), x, ("blk.0.ffn_gate.weight", "blk.0.ffn_up.weight")
        ),
        Node(RotateAttend(rotate), (x, x, x), x, ("rope_freqs.weight",)),
        Node(Gate(), (x, x), x),
    ]
    assert [task.label for task in tasks_of(Graph(nodes))] == [
        "ffn_gate+ffn_up",
        "attention",
        "Gate",
    ]
