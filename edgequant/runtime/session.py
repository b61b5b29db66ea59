"""A program and how much of its KV cache is filled. It knows token ids and nothing else.

Prefill is cut into batches, so that a device's scratch memory does not grow with the prompt.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from edgequant.blocks import Floats
from edgequant.device.protocol import Generator, Program, Sampling, Tokens
from edgequant.errors import GGUFError

BATCH = 512  # tokens a step at most: llama.cpp's n_ubatch
LOGITS_BYTES = 64 << 20  # of one step; a vocabulary of 128k gives 128 rows


class Session:
    """One text in the making on a program; `past` tokens are in its KV cache.

    Args:
        program: of which only one session may be in use.
        vocab: logits a row, from which follows how many rows a step may ask for.
        where: what to call the model in an error.
        batch: tokens a step at most.
    """

    def __init__(self, program: Program, vocab: int, where: str, *, batch: int = BATCH) -> None:
        self.past = 0
        self._where = where
        self._program = program
        self._batch = batch
        self._rows = max(1, LOGITS_BYTES // (4 * vocab))

    @property
    def room(self) -> int:
        """How many more tokens fit in the context."""
        return self._program.context - self.past

    def scan(self, tokens: Sequence[int] | Tokens, rows: int) -> Iterator[Floats]:
        """Feed tokens, and yield the logits of the last `rows` of them in order.

        Tokens are fed as the iterator is consumed: exhaust it.

        Args:
            tokens: 1..room ids.
            rows: 0..len(tokens).

        Yields:
            (n, vocab) float32, a few rows at a time, at most `LOGITS_BYTES` of them.

        Raises:
            GGUFError: a logit is not finite.
        """
        ids = np.asarray(tokens, dtype=np.int32)
        if not 1 <= len(ids) <= self.room:
            raise ValueError(f"{len(ids)} tokens do not fit in the {self.room} left")
        first, start = len(ids) - rows, 0
        while start < len(ids):
            stop = min(start + self._batch, len(ids))
            if stop > first:
                stop = min(stop, max(start, first) + self._rows)
            wanted = max(0, stop - max(start, first))
            logits = self._program.run(ids[start:stop], self.past, rows=wanted)
            self.past += stop - start
            start = stop
            if not np.isfinite(logits).all():
                raise self._not_finite()
            if wanted > 0:
                yield logits

    def prefill(self, tokens: Sequence[int] | Tokens) -> Floats:
        """Feed 1..room tokens and return the logits of the last, (vocab,)."""
        (logits,) = self.scan(tokens, 1)
        last: Floats = logits[-1]
        return last

    def fill(self, tokens: Sequence[int] | Tokens) -> None:
        """Feed 1..room tokens whose logits nobody wants."""
        for _ in self.scan(tokens, 0):
            pass  # nothing comes

    def decode(self, token: int) -> Floats:
        """Feed one token and return its logits, (vocab,)."""
        return self.prefill([token])

    @property
    def chains(self) -> bool:
        """Whether `generate` can be used."""
        return isinstance(self._program, Generator)

    def generate(self, token: int, count: int, sampling: Sampling) -> Iterator[int]:
        """Feed a token, and yield tokens drawn on the device, each fed before the next is drawn.

        Args:
            token: to begin with.
            count: how many to draw at most; as many steps must fit in the context.
            sampling: how; a repeat penalty is not applied.

        Raises:
            GGUFError: a logit is not finite.
        """
        program = self._program
        if not isinstance(program, Generator):
            raise TypeError("this program draws no tokens: look at `chains`")
        if not 0 <= count <= self.room:
            raise ValueError(f"{count} steps do not fit in the {self.room} left")
        try:
            for drawn in program.generate(token, self.past, count, sampling):
                self.past += 1
                yield drawn
        except FloatingPointError:
            raise self._not_finite() from None

    def rewind(self, past: int = 0) -> None:
        """Forget all but the first `past` tokens."""
        if not 0 <= past <= self.past:
            raise ValueError(f"cannot rewind to {past}: {self.past} tokens are in the cache")
        self.past = past

    def _not_finite(self) -> GGUFError:
        return GGUFError(
            f"{self._where}: after {self.past:,} tokens its logits are not finite.",
            hint="its weights are damaged; download or convert the file again.",
        )
