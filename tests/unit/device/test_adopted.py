"""Tensors that a GPU gets are where the file has them, in few ranges that are not too large."""

from pathlib import Path

import numpy as np
import pytest

from edgequant.blocks import BLOCK_TYPES, TensorInfo, Weight, Weights
from edgequant.device.adopted import ALIGNMENT, GAP, adopt, group
from edgequant.device.null import NullGpu
from edgequant.graph.launch import Limits

LIMITS = Limits(32, 256, 32768, 1 << 30, None, integer_dot=False)


def file_of(*tensors: tuple[int, int], size: int = 4096) -> Weights:
    """A file of random bytes with tensors "0", "1", … at (offset, bytes)."""
    content = np.random.default_rng(3).integers(0, 256, size, dtype=np.uint8)
    made = {}
    for number, (offset, nbytes) in enumerate(tensors):
        info = TensorInfo(str(number), BLOCK_TYPES["I8"], (nbytes,))
        made[str(number)] = Weight(info, content[offset : offset + nbytes].reshape(1, -1))
    return Weights(Path("f"), (memoryview(content),), made)


def offsets(weights: Weights, most: int = 1 << 20) -> list[dict[str, int]]:
    return [dict(part.offsets) for part in group(weights, list(weights), most)]


def test_tensors_together_make_one_range() -> None:
    weights = file_of((512, 100), (64, 32), (96, 416))
    assert offsets(weights) == [{"1": 0, "2": 32, "0": 448}]
    (part,) = group(weights, list(weights))
    assert bytes(part.content) == bytes(weights.mappings[0][64:612])


def test_ranges_are_bounded_and_a_larger_tensor_is_alone() -> None:
    weights = file_of((0, 64), (64, 64), (128, 300), (448, 64), (512, 64))
    assert offsets(weights, 128) == [{"0": 0, "1": 64}, {"2": 0}, {"3": 0, "4": 64}]


def test_what_is_not_used_is_left_out_where_it_is_large() -> None:
    weights = file_of((0, 32), (GAP + 64, 32), (GAP + 160, 32), size=GAP + 4096)
    assert offsets(weights, 1 << 30) == [{"0": 0}, {"1": 0, "2": 96}]
    assert [dict(p.offsets) for p in group(weights, ["2", "2"])] == [{"2": 0}]


def test_a_tensor_that_is_not_aligned_begins_a_range() -> None:
    weights = file_of((0, 8), (8, 24), (40, 8))
    assert ALIGNMENT == 16
    assert offsets(weights) == [{"0": 0}, {"1": 0, "2": 32}]


def test_tensors_in_no_file_and_in_several_files() -> None:
    a, b = file_of((0, 32), (32, 32)), file_of((0, 64))
    alone = Weight(TensorInfo("x", BLOCK_TYPES["I8"], (2, 8)), np.eye(2, 8, dtype=np.uint8)[:, ::1])
    tensors = {"a0": a["0"], "a1": a["1"], "b0": b["0"], "x": alone}
    renamed = {
        name: Weight(TensorInfo(name, w.type, w.shape), w.data) for name, w in tensors.items()
    }
    weights = Weights(Path("f"), (*a.mappings, *b.mappings), renamed)
    assert offsets(weights) == [{"a0": 0, "a1": 32}, {"b0": 0}, {"x": 0}]


@pytest.mark.parametrize("most", [64, 1 << 20])
def test_the_gpu_has_each_tensors_bytes(most: int) -> None:
    weights = file_of((32, 40), (80, 64), (160, 7))
    gpu = NullGpu(LIMITS)
    seen: list[int] = []
    buffers, spans = adopt(gpu, weights, group(weights, list(weights), most), seen.append)
    assert len(buffers) == len(seen)
    for name, weight in weights.items():
        span = spans[name]
        assert gpu.read(span.buffer, span.nbytes, span.offset) == weight.data.tobytes()
