"""A null GPU that notes what a step would have seen, and plays the sampling kernel."""

from collections.abc import Iterator, Sequence
from itertools import count

import numpy as np

from edgequant.device.null import NullGpu
from edgequant.device.protocol import Buffer, Place, Ticket
from edgequant.device.step import STEP
from edgequant.graph.kernels.sample import RING
from edgequant.graph.launch import Limits

LIMITS = Limits(32, 256, 32768, 1 << 30, None, integer_dot=False)


class Watching(NullGpu):
    """A null GPU that notes each step, and samples: the tokens of `draw`, one a step.

    Attributes:
        steps: the records, as they were when their step was submitted.
        ids: of each step's tokens.
        flying: tickets submitted and not waited for.
    """

    def __init__(self, limits: Limits = LIMITS) -> None:
        super().__init__(limits)
        self.draw: Iterator[int] = count(100)
        self.steps: list[np.ndarray] = []
        self.ids: list[list[int]] = []
        self.flying: set[Ticket] = set()

    def submit(self, recording: int) -> Ticket:
        ticket = super().submit(recording)
        self.flying.add(ticket)
        step = np.frombuffer(self._only(Place.UPLOAD, STEP.itemsize), STEP)[0].copy()
        tokens = self._only(Place.UPLOAD, None)
        self.steps.append(step.copy())
        self.ids.append(np.frombuffer(tokens, "<u4")[: int(step["tokens"])].tolist())
        if self.submitted[-1][-1].label == "sample":
            place, drawn = 4 * (int(step["drawn"]) % RING), next(self.draw)
            self._only(Place.READBACK, 4 * RING)[place : place + 4] = drawn.to_bytes(4, "little")
            tokens[:4] = drawn.to_bytes(4, "little")
            step["past"] += 1
            step["drawn"] += 1
            self._only(Place.UPLOAD, STEP.itemsize)[:] = step.tobytes()
        return ticket

    def wait(self, ticket: Ticket) -> Sequence[float]:
        self.flying.discard(ticket)
        return super().wait(ticket)

    def read(self, buffer: Buffer, nbytes: int, offset: int = 0) -> bytes:
        self.flying.clear()  # it waits for all
        return super().read(buffer, nbytes, offset)

    def free(self, buffer: Buffer) -> None:
        assert not self.flying, "what is in flight may use it"
        super().free(buffer)

    def peek(self, buffer: Buffer, nbytes: int, offset: int = 0) -> bytes:
        assert self.places[buffer] is Place.READBACK
        return super().read(buffer, nbytes, offset)

    def _only(self, place: Place, nbytes: int | None) -> bytearray:
        """Return the buffer of a place and size; None: of any but the step record's."""
        (found,) = (
            content
            for buffer, content in self.live.items()
            if self.places[buffer] is place
            and (len(content) == nbytes if nbytes else len(content) != STEP.itemsize)
        )
        return found
