"""A stretch of a quantized model, its weights free to move, beside the same of its reference.

It knows how far the one's output is from the other's, and which way its weights reduce that; how
they can move is `tuned`'s matter, and which texts it sees, in which order, `tune`'s.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from math import isfinite

import numpy as np

from edgequant.blocks import Bytes, Floats, Weight
from edgequant.device.protocol import Tokens
from edgequant.formats import dequantize, find
from edgequant.formats.matrix import Matrix
from edgequant.graph import Node
from edgequant.graph.ops.linear import Linear
from edgequant.graph.tape import Tape
from edgequant.stages.tuned import Pace, Tuned

VALUES = 1 << 20  # of logits at once, 4 MiB
LEAST = np.float32(1e-30)  # squared length of an output that errors are divided by


@dataclass(frozen=True)
class Example:
    """A text of tokens (n,), what the stretch reads of it, and what it should make of that."""

    tokens: Tokens
    x: Floats | None
    target: Floats


class Lesson:
    """One stretch.

    Args:
        nodes: as recorded.
        ours: the quantized weights, by name.
        theirs: the reference's.
        free: names of those that may move, if their format lets them.
        tokens: of a text, at most.
        last: its output is logits.
    """

    def __init__(
        self, nodes: tuple[Node, ...], ours: Mapping[str, Weight], theirs: Mapping[str, Weight],
        free: frozenset[str], tokens: int, *, last: bool,
    ) -> None:  # fmt: skip
        self._tape, self._last = Tape(nodes, tokens), last
        names = dict.fromkeys(name for node in nodes for name in node.weights)
        multiplied = {
            name for node in nodes if isinstance(node.op, Linear) for name in node.weights
        }
        keep = multiplied | {name for name in names if len(ours[name].shape) == 1}
        self._stored = {name: ours[name] for name in names}
        self._theirs = {name: _matrix(theirs[name], name in keep) for name in names}
        self.tuned = {
            name: Tuned(ours[name], self._theirs[name].rows(0, ours[name].info.rows))
            for name in names
            if name in free and find(ours[name].type.name).refit is not None
        }
        self._ours = {
            name: self.tuned[name].matrix
            if name in self.tuned
            else _matrix(ours[name], name in keep)
            for name in names
        }

    def teach(self, tokens: Tokens, x: Floats | None) -> Floats:
        """Return what the reference makes of x, (n, columns), or of the tokens."""
        return self._tape.forward(self._theirs, tokens, x)

    def run(self, tokens: Tokens, x: Floats | None) -> Floats:
        """Return what the weights as they are now make of it."""
        return self._tape.forward(self._ours, tokens, x)

    def run_stored(self, tokens: Tokens, x: Floats | None) -> Floats:
        """Return what the weights as they are stored make of it."""
        stored = {name: Matrix(weight) for name, weight in self._stored.items()}
        return self._tape.forward(stored, tokens, x)

    def step(self, batch: Iterable[Example], pace: Pace, pool: Executor) -> float:
        """Return the mean loss of a batch, and move the weights once; not if it is no number."""
        totals = {name: tuned.total for name, tuned in self.tuned.items()}
        losses = []
        for example in batch:
            out = self.run(example.tokens, example.x)
            compare = divergence if self._last else relative_error
            losses.append(compare(example.target, out))
            self._tape.backward(out, totals)
        loss = float(np.mean(losses))
        if not isfinite(loss):
            return loss
        moves = [
            pool.submit(tuned.move, piece, pace)
            for tuned in self.tuned.values()
            for piece in tuned.pieces()
        ]
        for move in moves:
            move.result()
        return loss

    def changed(self) -> int:
        """Return how many weights are stored otherwise than at first."""
        moved = 0
        for name, tuned in self.tuned.items():
            weight = self._stored[name]
            first = dequantize(find(weight.type.name), weight.data)
            moved += int(np.count_nonzero(first != tuned.matrix.rows(0, len(first))))
        return moved

    def data(self) -> dict[str, Bytes]:
        """Return the bytes of what was free to move, by name."""
        return {name: tuned.data for name, tuned in self.tuned.items()}


def _matrix(weight: Weight, keep: bool) -> Matrix:
    return Matrix(weight).kept() if keep else Matrix(weight)


def relative_error(target: Floats, out: Floats) -> float:
    """Return the mean of |out - target|² / |target|² over tokens; its gradient replaces `out`."""
    out -= target
    scale = 1 / np.maximum(np.einsum("tc,tc->t", target, target), LEAST)
    loss = np.einsum("tc,tc,t->", out, out, scale) / len(out)
    out *= (2 * scale / np.float32(len(out)))[:, None]
    return float(loss)


def divergence(target: Floats, out: Floats) -> float:
    """Return the mean of KL(target || out) over tokens, both logits; its gradient replaces `out`.

    That is the difference of their probabilities; the target's replace `target`.
    """
    total, step = 0.0, max(1, VALUES // out.shape[1])
    for start in range(0, len(out), step):
        p, q = target[start : start + step], out[start : start + step]
        log_p, log_q = _log_softmax(p), _log_softmax(q)
        np.exp(log_p, out=p)
        np.exp(log_q, out=q)
        log_p -= log_q
        total += float(np.einsum("tv,tv->t", p, log_p).sum(dtype=np.float64))
        q -= p
        q /= np.float32(len(out))
    return total / len(out)


def _log_softmax(logits: Floats) -> Floats:
    shifted: Floats = logits - logits.max(axis=1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return shifted
