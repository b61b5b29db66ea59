"""Bytes on their way to buffers and back: through memory that host and device both see."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from ctypes import byref, memmove, memset, string_at
from dataclasses import dataclass
from threading import Lock

from edgequant.device.memory import address_of
from edgequant.device.protocol import Adopted, Place
from edgequant.device.vulkan import structs as vk
from edgequant.device.vulkan.logical import Commands, Logical
from edgequant.device.vulkan.memory import Block, Memory

# A staging buffer's bytes, and how many there are. They lie where UPLOAD does: on an H200 writing
# across the bus reaches 18 GB/s, staging in the host's memory 11.
STAGING, STAGES = 16 << 20, 8
_BOUNCE = 4 << 20  # bytes that go to or from a buffer at once, where the host does not see it


@dataclass
class _Stage:
    """A staging buffer, what copies it, and when that is done."""

    block: Block
    commands: Commands
    ticket: int = 0


class Transfer:
    """Copies into and out of the buffers of one device."""

    def __init__(self, logical: Logical, memory: Memory) -> None:
        self._logical = logical
        self._memory = memory
        self._commands = Commands(logical)
        self._bounces: dict[Place, Block] = {}

    def zero(self, block: Block) -> None:
        """Fill a buffer with zeros."""
        if block.host:
            memset(block.host, 0, block.nbytes)
            return
        self._commands.begin(again=False)
        self._logical.f.vkCmdFillBuffer(self._commands.handle, block.buffer, 0, 2**64 - 1, 0)
        self._commands.end()
        self._logical.wait(self._logical.submit(self._commands))

    def write(self, block: Block, content: bytes | memoryview, offset: int) -> None:
        """Copy bytes into a buffer that nothing uses."""
        if block.host:
            source = content if isinstance(content, bytes) else address_of(content)
            memmove(block.host + offset, source, len(content))
            return
        source = address_of(content)
        for start, nbytes in _pieces(len(content), _BOUNCE):
            staging = self._bounce(Place.UPLOAD)
            memmove(staging.host, source + start, nbytes)
            self._copy(staging, 0, block, offset + start, nbytes)

    def read(self, block: Block, nbytes: int, offset: int) -> bytes:
        """Return bytes of a buffer that nothing uses."""
        if block.host:
            return string_at(block.host + offset, nbytes)
        parts = []
        for start, length in _pieces(nbytes, _BOUNCE):
            staging = self._bounce(Place.READBACK)
            self._copy(block, offset + start, staging, 0, length)
            parts.append(string_at(staging.host, length))
        return b"".join(parts)

    def close(self) -> None:
        """Give back what was kept for copying; every other buffer was freed."""
        self._commands.free()
        for staging in self._bounces.values():
            self._memory.free(staging)

    def upload(self, blocks: Iterable[tuple[Block, memoryview]], progress: Adopted) -> None:
        """Copy mapped files into buffers, which may still be in the making.

        Threads carry pieces, each with a staging buffer.
        """
        stages: list[_Stage] = []
        try:
            self._carry_all(blocks, stages, progress)
        finally:
            self._logical.idle()
            for stage in stages:
                stage.commands.free()
                self._memory.free(stage.block)

    def _carry_all(
        self,
        blocks: Iterable[tuple[Block, memoryview]],
        stages: list["_Stage"],
        progress: Adopted,
    ) -> None:
        """Take one piece after the other until there is none, or one fails."""
        pieces = (
            (target, address_of(content) + start, start, nbytes)
            for target, content in blocks
            for start, nbytes in _pieces(content.nbytes, STAGING)
        )
        turn = Lock()  # to take a piece, and for the queue

        def carry() -> None:
            stage = None
            while True:
                with turn:
                    piece = next(pieces, None)
                    if piece is None:
                        return
                    if stage is None:
                        block = self._memory.allocate(STAGING, Place.UPLOAD)
                        stage = _Stage(block, Commands(self._logical))
                        stages.append(stage)
                    self._logical.wait(stage.ticket)
                target, source, offset, nbytes = piece
                memmove(stage.block.host, source, nbytes)
                with turn:
                    self._encode(stage.commands, stage.block, 0, target, offset, nbytes)
                    stage.ticket = self._logical.submit(stage.commands)
                    progress(nbytes)

        with ThreadPoolExecutor(STAGES) as threads:
            try:
                for carried in as_completed([threads.submit(carry) for _ in range(STAGES)]):
                    carried.result()
            finally:
                with turn:
                    pieces.close()  # after an error, or Ctrl-C, the other threads are done too
        self._logical.wait_all()

    def _bounce(self, place: Place) -> Block:
        """Return the buffer through which bytes go, which is made once."""
        if place not in self._bounces:
            self._bounces[place] = self._memory.allocate(_BOUNCE, place)
        return self._bounces[place]

    def _copy(self, source: Block, start: int, target: Block, offset: int, nbytes: int) -> None:
        self._encode(self._commands, source, start, target, offset, nbytes)
        self._logical.wait(self._logical.submit(self._commands))

    def _encode(
        self, commands: Commands, source: Block, start: int, target: Block, offset: int, nbytes: int
    ) -> None:
        region = vk.BufferCopy(source=start, target=offset, nbytes=nbytes)
        commands.begin(again=False)
        self._logical.f.vkCmdCopyBuffer(
            commands.handle, source.buffer, target.buffer, 1, byref(region)
        )
        commands.end()


def _pieces(nbytes: int, most: int) -> Iterator[tuple[int, int]]:
    """Cut a length into pieces: yields where each starts and how long it is."""
    for start in range(0, nbytes, most):
        yield start, min(most, nbytes - start)
