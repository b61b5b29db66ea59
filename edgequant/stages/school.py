"""All stretches of a quantized model, one after the other, and what each of them reads.

It holds what the reference and the quantized model made of each chunk so far, 8 bytes a token and
column of the stream between layers, and the weights of one stretch at a time.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from math import ceil, cos, isfinite, pi

import numpy as np

from edgequant.blocks import Bytes, Floats
from edgequant.device.cpu import CpuDevice
from edgequant.device.memory import available_bytes
from edgequant.device.protocol import Tokens
from edgequant.errors import DeviceError, GGUFError, UnsupportedError
from edgequant.formats import find
from edgequant.gguf.reader import GGUFFile
from edgequant.graph import Graph, Node
from edgequant.graph.tape import stretches
from edgequant.model.registry import read_model
from edgequant.model.tensors import role_of
from edgequant.progress import Progress
from edgequant.stages.lesson import Example, Lesson, divergence
from edgequant.stages.tuned import BYTES_A_WEIGHT, Pace

WARM = 10  # the rate rises over this part of the steps: a tenth
FASTEST = 0.04  # of a step, in distances of levels; a run of few steps stays within its reach
HELD_BACK = 8  # chunks at most, and a sixteenth of them


@dataclass(frozen=True)
class Course:
    """How a stretch learns.

    Attributes:
        passes: how often it sees each chunk.
        batch: chunks between two steps.
        reach: how far a weight can go in all steps together, in distances of levels, > 0.
        seed: of the chunks' order.
    """

    passes: int = 1
    batch: int = 4
    reach: float = 0.7
    seed: int = 0

    def steps(self, chunks: int) -> int:
        """Return how many there are with so many chunks."""
        return ceil(self.passes * chunks / self.batch)

    def batches(self, chunks: Sequence[int]) -> Iterator[tuple[Pace, list[int]]]:
        """Yield the pace and the chunks, of these, of each step."""
        rng = np.random.default_rng(self.seed)
        order = np.concatenate([rng.permutation(chunks) for _ in range(self.passes)])
        for step, rate in enumerate(self._rates(self.steps(len(chunks)))):
            batch = order[step * self.batch : (step + 1) * self.batch]
            yield Pace(step + 1, rate), [int(number) for number in batch]

    def _rates(self, steps: int) -> list[float]:
        """Share the reach among steps: rising at first, then falling along half a cosine."""
        warm = max(1, steps // WARM)
        shares = [min(1, (step + 1) / warm) * (1 + cos(pi * step / steps)) for step in range(steps)]
        return [min(FASTEST, self.reach * share / sum(shares)) for share in shares]


class School:
    """One run.

    Args:
        ours: the quantized model.
        theirs: its reference.
        chunks: (n,) ids each, two or more.
        course: how each stretch learns.
        progress: is told of chunks.

    Attributes:
        taught: the numbers of the chunks that are learned from.
        held_back: those of the others.
        data: the bytes of what was free to move, by name.
        changed: how many weights are stored otherwise than at first.
        before: the mean divergence on what is held back, of the weights as they were.
        after: the same, as they are now.

    Raises:
        UnsupportedError: the two do not belong together, or nothing is free to move.
        DeviceError: not enough memory.
    """

    def __init__(
        self,
        ours: GGUFFile,
        theirs: GGUFFile,
        chunks: Sequence[Tokens],
        course: Course,
        progress: Progress,
    ) -> None:
        self._where, self._chunks = str(ours.path), chunks
        self._course, self._progress = course, progress
        self._ours, self._theirs = ours.weights(), theirs.weights()
        self._stretches = _layers(_common_graph(ours, theirs))
        self._free = _movable(self._stretches)
        _check_formats(ours, self._free)
        _check_memory(ours, self._stretches, sum(chunk.size for chunk in chunks))
        count = max(1, min(HELD_BACK, len(chunks) // 16))
        self.held_back = [(2 * i + 1) * len(chunks) // (2 * count) for i in range(count)]
        self.taught = [n for n in range(len(chunks)) if n not in set(self.held_back)]
        # What was made of each chunk so far; nothing before the first stretch.
        self._of_theirs: dict[int, Floats] = {}
        self._of_ours: dict[int, Floats] = {}
        self._of_stored: dict[int, Floats] = {}  # by weights as they are stored
        self.data: dict[str, Bytes] = {}
        self.changed = 0
        self.before = self.after = 0.0

    def learn(self) -> None:
        """Take all lessons.

        Raises:
            GGUFError: an error is not a finite number.
        """
        work = 2 * len(self._chunks) + self._course.passes * len(self.taught)
        self._progress.begin("tune", len(self._stretches) * work, "chunks")
        for nodes in self._stretches:
            with np.errstate(invalid="ignore", over="ignore"):  # it shows in the error of a step
                self._study(nodes)
        self._progress.end()

    def _study(self, nodes: tuple[Node, ...]) -> None:
        last = nodes is self._stretches[-1]
        lesson = Lesson(
            nodes, self._ours, self._theirs, self._free, len(self._chunks[0]), last=last
        )
        if last:
            self._finish(lesson, _name(nodes))
        else:
            self._take(lesson, _name(nodes))
        self.data |= lesson.data()
        self.changed += lesson.changed()

    def _take(self, lesson: Lesson, name: str) -> None:
        """Take a lesson whose output the next one reads."""
        chunks = self._chunks
        for n, chunk in enumerate(chunks):
            self._of_theirs[n] = lesson.teach(chunk, self._of_theirs.get(n))
            self._progress.advance(1, name)
        for n in self.held_back:
            self._of_stored[n] = lesson.run_stored(chunks[n], self._of_stored.get(n))
        self._steps(lesson, name, self._of_theirs.__getitem__)
        for n, chunk in enumerate(chunks):
            self._of_ours[n] = lesson.run(chunk, self._of_ours.get(n))
            self._progress.advance(1, name)

    def _finish(self, lesson: Lesson, name: str) -> None:
        """Take the last lesson; logits are many, and made anew whenever they are needed."""
        chunks = self._chunks

        def target(n: int) -> Floats:
            return lesson.teach(chunks[n], self._of_theirs.get(n))

        held = self.held_back
        before = [
            divergence(target(n), lesson.run_stored(chunks[n], self._of_stored.get(n)))
            for n in held
        ]
        self._steps(lesson, name, target)
        after = [divergence(target(n), lesson.run(chunks[n], self._of_ours.get(n))) for n in held]
        self.before, self.after = float(np.mean(before)), float(np.mean(after))
        self._progress.advance(2 * len(chunks))

    def _steps(self, lesson: Lesson, name: str, target: Callable[[int], Floats]) -> None:
        if not lesson.tuned:
            self._progress.advance(self._course.passes * len(self.taught), name)
            return
        with ThreadPoolExecutor(CpuDevice().threads) as pool:
            for pace, numbers in self._course.batches(self.taught):
                examples = (
                    Example(self._chunks[n], self._of_ours.get(n), target(n)) for n in numbers
                )
                error = lesson.step(examples, pace, pool)
                if not isfinite(error):
                    raise GGUFError(
                        f"{self._where}: the error of the {name} is {error} at step {pace.step}.",
                        hint="use a lower --reach; if it is so at step 1, a file is damaged.",
                    )
                self._progress.advance(len(numbers), f"{name}, error {error:.4f}")


def _common_graph(ours: GGUFFile, theirs: GGUFFile) -> Graph:
    """Return the graph of both."""
    graphs = []
    for file in (ours, theirs):
        architecture, hparams = read_model(file.values(), file.tensors, str(file.path))
        graphs.append(architecture.record(hparams))
    if graphs[0] != graphs[1]:
        raise UnsupportedError(
            f"{ours.path}: computes otherwise than {theirs.path}; it was not made of that.",
            hint="name the file that it was quantized from with --reference.",
        )
    return graphs[0]


def _layers(graph: Graph) -> list[tuple[Node, ...]]:
    """Cut a graph into layers, and what is before and after them."""
    grouped = groupby(stretches(graph), key=_layer)
    return [tuple(node for piece in pieces for node in piece) for _, pieces in grouped]


def _layer(nodes: Sequence[Node]) -> int | None:
    layers = (role_of(name)[1] for node in nodes for name in node.weights)
    return next((layer for layer in layers if layer is not None), None)


def _name(nodes: Sequence[Node]) -> str:
    layer = _layer(nodes)
    if layer is not None:
        return f"layer {layer}"
    return "embedding" if not nodes[0].inputs else "output"


def _movable(found: Sequence[Sequence[Node]]) -> frozenset[str]:
    """Return the weights that may move.

    Not those of the embedding, each of whose rows is a stretch's whole output: nothing cancels, and
    the level nearest to each weight is best. Nor what two stretches read, such as an embedding that
    is the output, too: it must stay as the first has read it.
    """
    readers = Counter(
        name for nodes in found for name in {n for node in nodes for n in node.weights}
    )
    first = {name for node in found[0] for name in node.weights}
    return frozenset(name for name, count in readers.items() if count == 1 and name not in first)


def _check_formats(file: GGUFFile, free: frozenset[str]) -> None:
    infos = [info for name, info in file.tensors.items() if name in free and len(info.shape) > 1]
    if all(info.type.weights == 1 or find(info.type.name).refit is None for info in infos):
        types = sorted({info.type.name for info in infos})
        raise UnsupportedError(
            f"{file.path}: has no tensor that can be tuned; its types are {', '.join(types)}.",
            hint="quantize to a type of K-quants, or to IQ2, IQ3 or IQ4_XS.",
        )


def _check_memory(file: GGUFFile, found: Sequence[Sequence[Node]], tokens: int) -> None:
    columns = found[0][-1].output.shape[-1]
    assert isinstance(columns, int)  # of the stream; only the first axis can be unknown
    stretch = max(
        sum(file.tensors[name].weights for node in nodes for name in node.weights)
        for nodes in found
    )
    needed = 2 * 4 * tokens * columns + (BYTES_A_WEIGHT + 4) * stretch
    free = available_bytes()
    if needed > free:
        raise DeviceError(
            f"{file.path}: tuning with {tokens:,} tokens takes {needed:,} bytes; {free:,} are "
            "free.",
            hint="use fewer --chunks, or close other programs.",
        )
