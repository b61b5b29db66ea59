"""What the pretend device says of itself."""

import mmap
from dataclasses import dataclass

GIB = 1 << 30


@dataclass
class Limits:
    """What a device can do; tests may change it.

    Attributes:
        name: of the device.
        families: of GPUs it belongs to: Apple7 and Metal3, as an M1.
        buffer: bytes of one buffer at most.
        working_set: bytes it recommends to use at most.
        memory: bytes of all buffers, after which there are no more.
        allocated: bytes that other buffers of the process take.
        threads: of a threadgroup at most.
        shared: bytes of threadgroup memory at most.
        simd: threads of a SIMD group.
        page: bytes of a page: this machine's, though a Mac's are 16,384.
    """

    name: str = "Pretend M1"
    families: frozenset[int] = frozenset({1007, 5001})
    buffer: int = 4 * GIB
    working_set: int = 8 * GIB
    memory: int = 64 * GIB
    allocated: int = 0
    threads: int = 1024
    shared: int = 32768
    simd: int = 32
    page: int = mmap.PAGESIZE
