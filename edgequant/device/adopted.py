"""Where the tensors of a model file lie on a GPU: in few buffers, each a range of the file.

It knows names and bytes, and nothing of what the tensors are for.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgequant.blocks import Weight, Weights
from edgequant.device.protocol import Adopted, Buffer, Gpu
from edgequant.graph.launch import Span

RANGE = 1 << 28  # bytes of a buffer at most, unless one tensor is larger: the first is soon there
GAP = 1 << 20  # bytes of other tensors between two that are still adopted together
ALIGNMENT = 16  # bytes, of each tensor's address


@dataclass(frozen=True)
class Range:
    """Tensors that lie together.

    Attributes:
        content: of the file, or of one tensor in memory.
        offsets: of each tensor by name, in bytes.
    """

    content: memoryview
    offsets: Mapping[str, int]


def group(weights: Weights, names: Iterable[str], most: int = RANGE) -> list[Range]:
    """Group tensors into ranges of at most `most` bytes; a larger tensor is alone.

    A tensor that is not at a multiple of `ALIGNMENT` from the beginning of its range, as files with
    a small alignment have them, begins a range of its own.
    """
    ranges = []
    for mapping, found in _by_mapping(weights, names):
        run: list[tuple[int, Weight]] = []
        for start, weight in found:
            first = run[0][0] if run else start
            end = run[-1][0] + run[-1][1].info.nbytes if run else start
            far = start - end > GAP or start + weight.info.nbytes - first > most
            if run and (far or (start - first) % ALIGNMENT):
                ranges.append(_range(mapping, run))
                run = []
            run.append((start, weight))
        ranges.append(_range(mapping, run))
    return ranges


def adopt(
    gpu: Gpu, weights: Weights, ranges: Sequence[Range], progress: Adopted
) -> tuple[Sequence[Buffer], Mapping[str, Span]]:
    """Bring ranges to a GPU; return the buffers, and where each tensor lies."""
    buffers = gpu.adopt([part.content for part in ranges], progress)
    spans = {
        name: Span(buffer, offset, weights[name].info.nbytes)
        for buffer, part in zip(buffers, ranges, strict=True)
        for name, offset in part.offsets.items()
    }
    return buffers, spans


def _by_mapping(
    weights: Weights, names: Iterable[str]
) -> list[tuple[memoryview, list[tuple[int, Weight]]]]:
    """Return, for each mapped file, the tensors in it with their offsets, in order of these.

    A tensor that is in no file is one of its own.
    """
    files = [(_address(np.frombuffer(view, np.uint8)), view) for view in weights.mappings]
    found: list[tuple[memoryview, list[tuple[int, Weight]]]] = [(view, []) for _, view in files]
    for weight in (weights[name] for name in dict.fromkeys(names)):
        at = _address(weight.data)
        for (start, view), (_, inside) in zip(files, found, strict=False):
            if start <= at < start + len(view):
                inside.append((at - start, weight))
                break
        else:
            content = np.ascontiguousarray(weight.data).reshape(-1).data
            found.append((content, [(0, weight)]))
    for _, inside in found:
        inside.sort(key=lambda pair: pair[0])
    return [pair for pair in found if pair[1]]


def _range(mapping: memoryview, run: Sequence[tuple[int, Weight]]) -> Range:
    first, (last, weight) = run[0][0], run[-1]
    offsets = {weight.name: start - first for start, weight in run}
    return Range(mapping[first : last + weight.info.nbytes], offsets)


def _address(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
