"""Each rewrite computes what its parts do, and leaves alone what it must not touch."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from assemble import GOLDEN, assemble, weight
from hypothesis import given, settings
from hypothesis import strategies as st

from edgequant.blocks import BLOCK_TYPES, BlockType
from edgequant.device.cpu import CpuDevice
from edgequant.formats.matrix import Matrix
from edgequant.graph import TOKENS, Array, Graph, Step, Value
from edgequant.graph.fuse import fuse
from edgequant.graph.op import Op
from edgequant.graph.ops.add import Add
from edgequant.graph.ops.attention import Attention
from edgequant.graph.ops.bias import Bias
from edgequant.graph.ops.embed import Embed
from edgequant.graph.ops.fused_linear import FusedLinear
from edgequant.graph.ops.gate import Gate
from edgequant.graph.ops.linear import Linear
from edgequant.graph.ops.rms_norm import RmsNorm
from edgequant.graph.ops.rope import Rope
from edgequant.graph.ops.rotate_attend import RotateAttend
from edgequant.graph.ops.rotate_store import RotateStore
from edgequant.graph.ops.store_kv import StoreKV
from edgequant.model.registry import read_config

F32, Q8_0 = BLOCK_TYPES["F32"], BLOCK_TYPES["Q8_0"]
COLUMNS, HEAD = 8, 4  # of every value of the graphs below: 2 heads, each its own keys
TOKEN_IDS = np.array([1, 5, 2], np.int32)


class Sketch:
    """A graph in the making over values of COLUMNS columns, and random weights for it."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.arrays: dict[str, Array] = {}
        self._rng = np.random.default_rng(5)
        self.x = self.add(Embed(COLUMNS), shape=(6, COLUMNS))

    def add(self, op: Op, *inputs: Value, shape: tuple[int, ...] = ()) -> Value:
        name = f"w{len(self.graph.nodes)}" if shape else None
        if name:
            self.arrays[name] = self._rng.standard_normal(shape).astype(np.float32)
        return self.graph.add(op, *inputs, weight=name)

    def linear(self, x: Value) -> Value:
        return self.add(Linear(COLUMNS, COLUMNS), x, shape=(COLUMNS, COLUMNS))

    def bias(self, x: Value) -> Value:
        return self.add(Bias(COLUMNS), x, shape=(COLUMNS,))

    def step(self, kind: int, a: Value, b: Value) -> Value:
        """Append one of five ops; a linear layer twice as often as the others."""
        match kind:
            case 0:
                return self.bias(a)
            case 1:
                return self.add(Gate(), a, b)
            case 2:
                return self.add(Add(), a, b)
            case 3:
                return self.add(RmsNorm(COLUMNS, 1e-5), a, shape=(COLUMNS,))
            case _:
                return self.linear(a)

    def attend(self, *, norms: bool = True, freqs: bool = False, **changed: object) -> Value:
        """Append attention; `changed` are fields of the queries' rope that the keys' has not."""
        q, k, v = (self.linear(self.x) for _ in range(3))
        if norms:
            q, k = (self.add(RmsNorm(HEAD, 1e-5), x, shape=(HEAD,)) for x in (q, k))
        base = {"base": 100.0, "interleaved": True, "stretch": 2.0}
        shape = (HEAD // 2,) if freqs else ()
        q = self.add(Rope(HEAD, **(base | changed)), q, shape=shape)  # type: ignore[arg-type]
        k = self.add(Rope(HEAD, **base), k)  # type: ignore[arg-type]
        if freqs:  # both ropes of a layer have the same factors
            self.graph.nodes[-1] = replace(
                self.graph.nodes[-1], weights=self.graph.nodes[-2].weights
            )
        stored = self.add(StoreKV(0, 2, HEAD), k, v)
        return self.add(Attention(0, 2, 2, HEAD), q, stored)

    def fused(self, types: dict[str, BlockType] | None = None) -> Graph:
        """Fuse, after showing that both graphs compute the same to the last bit."""
        fused = fuse(self.graph, dict.fromkeys(self.arrays, F32) | (types or {}))
        assert [node.output.number for node in fused.nodes] == list(range(len(fused.nodes)))
        assert np.array_equal(self.compute(self.graph), self.compute(fused))
        return fused

    def compute(self, graph: Graph) -> Array:
        cache = {0: tuple(np.zeros((4, 2, HEAD), np.float32) for _ in range(2))}
        step = Step(TOKEN_IDS, 1, 1, cache)  # type: ignore[arg-type]
        values: dict[int, Array] = {}
        for node in graph.nodes:
            assert node.op.shape(*(v.shape for v in node.inputs)) == node.output.shape
            inputs = [values[v.number] for v in node.inputs]
            matrices = [Matrix(weight(name, self.arrays[name])) for name in node.weights]
            with np.errstate(all="ignore"):
                values[node.output.number] = node.op.reference(inputs, matrices, step)
        return values[len(graph.nodes) - 1]


def kinds(graph: Graph) -> list[str]:
    return [type(node.op).__name__ for node in graph.nodes]


def test_bias_joins_its_linear() -> None:
    s = Sketch()
    s.bias(s.linear(s.x))
    fused = s.fused()
    assert kinds(fused) == ["Embed", "FusedLinear"]
    assert fused.nodes[1].op == FusedLinear(COLUMNS, COLUMNS, bias=True)
    assert fused.nodes[1].weights == ("w1", "w2")


def test_a_second_bias_stays() -> None:
    s = Sketch()
    s.bias(s.bias(s.linear(s.x)))
    assert kinds(s.fused()) == ["Embed", "FusedLinear", "Bias"]


def test_a_linear_read_twice_keeps_its_bias_apart() -> None:
    s = Sketch()
    y = s.linear(s.x)
    s.add(Gate(), s.bias(y), y)
    assert kinds(s.fused()) == ["Embed", "FusedLinear", "Bias", "Gate"]


def test_gate_and_up_become_one() -> None:
    s = Sketch()
    s.add(Gate(), s.linear(s.x), s.linear(s.x))
    fused = s.fused()
    assert kinds(fused) == ["Embed", "FusedLinear"]
    assert fused.nodes[1].op == FusedLinear(COLUMNS, COLUMNS, gated=True)
    assert fused.nodes[1].weights == ("w1", "w2")


def test_gate_and_up_of_two_formats_stay_apart() -> None:
    s = Sketch()
    s.add(Gate(), s.linear(s.x), s.linear(s.x))
    assert kinds(s.fused({"w2": Q8_0})) == ["Embed", "FusedLinear", "FusedLinear", "Gate"]


def test_gate_and_up_with_biases_or_of_two_inputs_stay_apart() -> None:
    s = Sketch()
    s.add(Gate(), s.bias(s.linear(s.x)), s.linear(s.x))
    assert kinds(s.fused()) == ["Embed", "FusedLinear", "FusedLinear", "Gate"]
    s = Sketch()
    y = s.add(RmsNorm(COLUMNS, 1e-5), s.x, shape=(COLUMNS,))
    s.add(Gate(), s.linear(s.x), s.linear(y))
    assert "Gate" in kinds(s.fused())


def test_gate_of_a_value_and_itself_stays() -> None:
    s = Sketch()
    y = s.linear(s.x)
    s.add(Gate(), y, y)
    assert kinds(s.fused()) == ["Embed", "FusedLinear", "Gate"]


@pytest.mark.parametrize("swapped", [False, True])
def test_residual_joins_the_branch(swapped: bool) -> None:
    s = Sketch()
    y = s.bias(s.linear(s.x))
    s.add(Add(), *((y, s.x) if swapped else (s.x, y)))
    fused = s.fused()
    assert kinds(fused) == ["Embed", "FusedLinear"]
    assert fused.nodes[1].op == FusedLinear(COLUMNS, COLUMNS, bias=True, residual=True)
    assert [v.number for v in fused.nodes[1].inputs] == [0, 0]


def test_of_two_linears_the_later_takes_the_sum() -> None:
    s = Sketch()
    s.add(Add(), s.linear(s.x), s.linear(s.x))
    fused = s.fused()
    assert kinds(fused) == ["Embed", "FusedLinear", "FusedLinear"]
    assert fused.nodes[2].weights == ("w2",)
    assert [v.number for v in fused.nodes[2].inputs] == [0, 1]


def test_a_branch_read_twice_and_a_sum_of_sums_keep_their_add() -> None:
    s = Sketch()
    y = s.linear(s.x)
    s.add(Add(), y, y)
    assert kinds(s.fused()) == ["Embed", "FusedLinear", "Add"]
    s = Sketch()
    s.add(Add(), s.add(Add(), s.linear(s.x), s.x), s.x)
    assert kinds(s.fused()) == ["Embed", "FusedLinear", "Add"]


@pytest.mark.parametrize("norms", [False, True])
@pytest.mark.parametrize("freqs", [False, True])
def test_norms_rotation_store_and_attention_become_one(norms: bool, freqs: bool) -> None:
    s = Sketch()
    s.attend(norms=norms, freqs=freqs)
    fused = s.fused()
    assert kinds(fused) == ["Embed", *["FusedLinear"] * 3, "RotateAttend"]
    op = RotateStore(0, 2, 2, HEAD, 100.0, True, 2.0, 1e-5 if norms else None, freqs)
    assert fused.nodes[4].op == RotateAttend(op)
    assert [v.number for v in fused.nodes[4].inputs] == [1, 2, 3]
    assert fused.nodes[4].output.shape == (TOKENS, COLUMNS)


def test_queries_and_keys_that_turn_differently_stay_apart() -> None:
    s = Sketch()
    s.attend(base=200.0)
    assert "RotateAttend" not in kinds(s.fused())


def test_rotated_queries_read_elsewhere_stay_apart() -> None:
    s = Sketch()
    out = s.attend()
    s.add(Add(), out, s.graph.nodes[-1].inputs[0])
    assert "RotateAttend" not in kinds(s.fused())


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(0, 9)), max_size=14))
def test_any_graph_computes_the_same(plan: list[tuple[int, int, int]]) -> None:
    s = Sketch()
    values = [s.x]
    for kind, first, second in plan:
        a, b = (values[-1 - min(back, len(values) - 1)] for back in (first, second))
        values.append(s.step(kind, a, b))
    fused = s.fused()
    assert len(fused.nodes) <= len(s.graph.nodes)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_our_architectures_compute_the_same_in_few_nodes(path: Path) -> None:
    golden = np.load(path)
    architecture, h = read_config(json.loads(str(golden["config.json"])), "config.json")
    weights = assemble(architecture, h, golden)
    graph = architecture.record(h)
    fused = fuse(graph, {name: weights[name].type for name in graph.weights})
    tokens = golden["tokens"]
    plain, quick = (
        CpuDevice().load(g, weights, context=len(tokens)).run(tokens, 0, rows=len(tokens))
        for g in (graph, fused)
    )
    assert np.array_equal(plain, quick)
    count = Counter(kinds(fused))
    # norm, q, k, v, attention, output; norm, gated, down (or gate, up, Gate with biases)
    a_layer = 11 if h.mlp_bias else 9
    assert sum(count.values()) == 4 + a_layer * h.layers
    assert count["RotateAttend"] == h.layers
    assert not count["Add"] + count["Bias"] + count["Rope"] + count["StoreKV"]
