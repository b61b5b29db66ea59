"""Norms vanish where the layers around them can do them, and the graph computes the same."""

from dataclasses import replace

import numpy as np
import pytest
from assemble import weight
from bench.make_checkpoint import config_of
from bench.make_model import SHAPES

from edgequant.blocks import BLOCK_TYPES
from edgequant.formats.matrix import Matrix
from edgequant.graph import Array, Graph, Step, Value
from edgequant.graph.fuse import fuse
from edgequant.graph.launch import Call, Kind, Limits
from edgequant.graph.norms import absorb_norms
from edgequant.graph.op import Op
from edgequant.graph.ops.add import Add
from edgequant.graph.ops.embed import Embed
from edgequant.graph.ops.linear import Linear
from edgequant.graph.ops.normed_linear import NormedLinear
from edgequant.graph.ops.rms_norm import RmsNorm
from edgequant.graph.plan import plan, tasks_of
from edgequant.graph.trim import trim
from edgequant.model.architectures.llama import ARCHITECTURE
from edgequant.model.hparams import HParams

COLUMNS = 64
LIMITS = Limits(32, 1024, 32768, 1 << 30, None, integer_dot=True)


class Sketch:
    """A fused graph in the making over values of COLUMNS columns."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.x = self.add(Embed(COLUMNS), shape=(6, COLUMNS))

    def add(self, op: Op, *inputs: Value, shape: tuple[int, ...] = ()) -> Value:
        name = f"w{len(self.graph.nodes)}" if shape else None
        if name:
            self.shapes[name] = shape
        return self.graph.add(op, *inputs, weight=name)

    def linear(self, x: Value) -> Value:
        return self.add(Linear(COLUMNS, COLUMNS), x, shape=(COLUMNS, COLUMNS))

    def norm(self, x: Value, width: int = COLUMNS) -> Value:
        return self.add(RmsNorm(width, 1e-5), x, shape=(width,))

    def absorbed(self, limits: Limits = LIMITS, **types: str) -> list[str]:
        """Return the ops without their norms, after showing that the result is the same."""
        kinds = {
            name: BLOCK_TYPES[types.get(name, "Q8_0" if len(shape) > 1 else "F32")]
            for name, shape in self.shapes.items()
        }
        fused = fuse(self.graph, kinds)
        found = absorb_norms(fused, kinds, limits)
        assert [node.output.number for node in found.nodes] == list(range(len(found.nodes)))
        rng = np.random.default_rng(3)
        matrices = {
            name: Matrix(weight(name, rng.standard_normal(shape), kinds[name].name))
            for name, shape in self.shapes.items()
        }
        assert np.array_equal(_compute(fused, matrices), _compute(found, matrices))
        return [_name(node.op) for node in found.nodes]


def _compute(graph: Graph, matrices: dict[str, Matrix]) -> Array:
    values: dict[int, Array] = {}
    step = Step(np.array([3], np.int32), 0, 1, {})
    for node in graph.nodes:
        assert node.op.shape(*(v.shape for v in node.inputs)) == node.output.shape
        inputs = [values[v.number] for v in node.inputs]
        weights = [matrices[name] for name in node.weights]
        values[node.output.number] = node.op.reference(inputs, weights, step)
    return values[len(graph.nodes) - 1]


def _name(op: Op) -> str:
    if not isinstance(op, NormedLinear):
        return type(op).__name__
    before = "norm " if op.before is not None else ""
    return f"{before}linear{' norm' if op.after else ''}"


def test_a_norm_between_layers_vanishes() -> None:
    s = Sketch()
    x = s.add(Add(), s.linear(s.norm(s.x)), s.x)
    y = s.norm(x)
    x = s.add(Add(), s.linear(s.linear(y)), x)
    s.linear(s.norm(x))
    assert s.absorbed() == [
        "Embed", "norm linear norm", "norm linear", "linear norm", "norm linear"
    ]  # fmt: skip


def test_several_layers_read_one_norm() -> None:
    s = Sketch()
    y = s.norm(s.linear(s.x))
    s.add(Add(), s.linear(y), s.linear(y))
    assert s.absorbed() == ["Embed", "linear norm", "norm linear", "norm linear"]


def test_a_maker_of_floats_rounds_nothing() -> None:
    s = Sketch()
    s.linear(s.norm(s.linear(s.x)))
    assert s.absorbed(w1="F16") == ["Embed", "FusedLinear", "norm linear"]


def test_norms_that_stay() -> None:
    floats, elsewhere, twice, heads, last, two = (Sketch() for _ in range(6))
    floats.linear(floats.norm(floats.linear(floats.x)))
    y = elsewhere.norm(elsewhere.linear(elsewhere.x))
    elsewhere.add(
        Add(), elsewhere.linear(elsewhere.x), elsewhere.add(Add(), elsewhere.linear(y), y)
    )
    y = twice.norm(twice.linear(twice.x))
    twice.add(Add(), twice.linear(y), y)
    heads.linear(heads.norm(heads.linear(heads.x), COLUMNS // 2))
    last.norm(last.linear(last.x))
    y = two.linear(two.x)
    two.add(Add(), two.linear(two.norm(y)), two.linear(two.norm(y)))
    for sketch, types in (
        (floats, {"w3": "F16"}),
        *((s, {}) for s in (elsewhere, twice, heads, last, two)),
    ):
        assert "RmsNorm" in sketch.absorbed(**types)


@pytest.mark.parametrize(
    "limits",
    [replace(LIMITS, integer_dot=False), replace(LIMITS, workgroup=256)],
    ids=["floats", "small workgroups"],
)
def test_gpus_that_keep_norms(limits: Limits) -> None:
    s = Sketch()
    s.linear(s.norm(s.linear(s.x)))
    assert "RmsNorm" in s.absorbed(limits)


def test_llama_loses_all_norms() -> None:
    """What its layers read is derived by the layers before; of the embedding by a kernel."""
    h = HParams.from_config(config_of(SHAPES["tiny"]), "config.json")
    graph = ARCHITECTURE.record(h)
    types = {
        spec.name: BLOCK_TYPES["F32" if len(spec.shape) == 1 else "Q4_K"]
        for spec in ARCHITECTURE.tensors(h)
    }
    fused = trim(fuse(graph, types))
    call = Call(1, 1, 512, 512, (), BLOCK_TYPES["F16"], LIMITS)
    made = plan(tasks_of(absorb_norms(fused, types, LIMITS)), call, types)
    kernels = [placed.launch.kernel for placed in made.launches]
    layer = [*["matvec_i8_q4_k"] * 3, "attention_f16", *["matvec_i8_q4_k"] * 3]
    first = ["embed_q4_k", "quantize_activations"]
    assert kernels == [*first, *layer * h.layers, "matvec_i8_q4_k"]
    derived = [
        [o.tag for o in placed.launch.operands if o.kind is Kind.DERIVED and o.writes]
        for placed in made.launches
    ]
    written = [[], [], [], ["q8"], ["norm"], ["q8"], ["norm"]]
    assert derived == [[], ["norm"], *written * h.layers, []]
