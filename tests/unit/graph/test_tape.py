"""A graph in stretches, and that only what is asked for of its gradients is kept."""

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pytest
from tiny_model import SIZES, write_model

from edgequant.device.cpu import CpuDevice
from edgequant.formats.matrix import Matrix
from edgequant.gguf.reader import open_file
from edgequant.graph import Graph
from edgequant.graph.tape import Tape, stretches
from edgequant.model.registry import by_name

TOKENS = np.array([3, 1, 4, 1, 5, 9, 2, 6], np.int32)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return by_name("llama").record(SIZES)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Matrix]:
    path = write_model(tmp_path_factory.mktemp("tape") / "model.gguf", fmt="F32")
    with open_file(path) as file:
        return {name: Matrix(weight).kept() for name, weight in file.weights().items()}


def test_stretches_are_the_graph_and_read_one_value_each(graph: Graph) -> None:
    found = stretches(graph)
    assert [node for nodes in found for node in nodes] == graph.nodes
    assert len(found) == 1 + 2 * SIZES.layers + 3  # embedding, halves of layers, rows, norm, output
    for before, nodes in pairwise(found):
        made = {node.output for node in nodes}
        read = {value for node in nodes for value in node.inputs} - made
        assert read == {before[-1].output}


def test_stretch_by_stretch_is_the_whole(graph: Graph, weights: Mapping[str, Matrix]) -> None:
    x = None
    for nodes in stretches(graph):
        x = Tape(nodes, len(TOKENS)).forward(weights, TOKENS, x)
    whole = Tape(graph.nodes, 12).forward(weights, TOKENS)  # of a tape with room to spare
    assert x is not None
    assert np.array_equal(x, whole)
    stored = {name: matrix.weight for name, matrix in weights.items()}
    program = CpuDevice().load(graph, stored, context=12)  # type: ignore[arg-type]
    assert np.array_equal(whole, program.run(TOKENS, 0, rows=len(TOKENS)))


def test_gradients_add_up_over_texts(graph: Graph, weights: Mapping[str, Matrix]) -> None:
    tape, name = Tape(graph.nodes, len(TOKENS)), "blk.0.attn_k.weight"
    out = tape.forward(weights, TOKENS)
    alone = {name: np.zeros(weights[name].shape, np.float32)}
    tape.backward(out, alone)
    assert alone[name].any()
    others = {key: np.zeros(matrix.shape, np.float32) for key, matrix in weights.items()}
    for _ in range(2):
        tape.forward(weights, TOKENS)
        tape.backward(out, others)
    assert others[name] == pytest.approx(2 * alone[name], rel=1e-5)
