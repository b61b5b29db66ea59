"""Fewer tokens' values are computed, and the logits are the same."""

import json
from pathlib import Path

import numpy as np
import pytest
from assemble import GOLDEN, assemble

from edgequant.device.cpu import CpuDevice
from edgequant.graph import ROWS, Graph, Value
from edgequant.graph.fuse import fuse
from edgequant.graph.ops.add import Add
from edgequant.graph.ops.embed import Embed
from edgequant.graph.ops.linear import Linear
from edgequant.graph.ops.rms_norm import RmsNorm
from edgequant.graph.ops.rope import Rope
from edgequant.graph.ops.rows import Rows
from edgequant.graph.trim import trim
from edgequant.model.registry import read_config


def kinds(graph: Graph) -> list[tuple[str, bool]]:
    """Each node's op, and whether it computes rows alone."""
    return [(type(node.op).__name__, node.output.shape[0] is ROWS) for node in graph.nodes]


def embedded() -> tuple[Graph, Value]:
    graph = Graph()
    return graph, graph.add(Embed(4), weight="e")


def test_rows_go_up_to_what_others_read() -> None:
    graph, x = embedded()
    turned = graph.add(Rope(4, 100.0, True), x)
    normed = graph.add(RmsNorm(4, 1e-5), turned, weight="n")
    summed = graph.add(Add(), normed, turned)
    graph.add(Linear(4, 9), graph.add(Rows(), summed), weight="o")
    assert kinds(trim(graph)) == [
        ("Embed", False), ("Rope", False), ("Rows", True), ("RmsNorm", True), ("Add", True),
        ("Linear", True),
    ]  # fmt: skip


def test_what_is_also_read_whole_stays_whole() -> None:
    graph, x = embedded()
    normed = graph.add(RmsNorm(4, 1e-5), x, weight="n")
    turned = graph.add(Rope(4, 100.0, True), normed)
    graph.add(Rows(), graph.add(Add(), normed, turned))
    assert kinds(trim(graph)) == [
        ("Embed", False), ("RmsNorm", False), ("Rope", False), ("Rows", True), ("Rows", True),
        ("Add", True),
    ]  # fmt: skip


def test_a_graph_without_rows_is_left_alone() -> None:
    graph, x = embedded()
    graph.add(RmsNorm(4, 1e-5), x, weight="n")
    assert trim(graph) == graph


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
@pytest.mark.parametrize("fused", [False, True])
def test_our_architectures_compute_the_same(path: Path, fused: bool) -> None:
    golden = np.load(path)
    architecture, h = read_config(json.loads(str(golden["config.json"])), "config.json")
    weights = assemble(architecture, h, golden)
    graph = architecture.record(h)
    if fused:
        graph = fuse(graph, {name: weights[name].type for name in graph.weights})
    tokens = golden["tokens"]
    whole, few = (
        CpuDevice().load(g, weights, context=len(tokens)).run(tokens, 0, rows=3)
        for g in (graph, trim(graph))
    )
    assert np.abs(whole - few).max() < 2e-6 * np.abs(whole).max()
    last = [rows for _, rows in kinds(trim(graph))]
    # the output's linear, its norm, and of the last layer all that follows attention
    assert sum(last) >= 8
