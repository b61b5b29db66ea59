"""`read_memory`: reads a stretch of memory and leaves it, to measure how fast a device can."""

from edgequant.graph.launch import Arguments, Kind, Launch, Operand

READ_MEMORY = Arguments(
    "ReadMemoryArgs",
    (("memory", "uint8_t"), ("made", "uint")),
    (("count", "uint"), ("workgroups", "uint")),
)
CHUNK = 16  # bytes a thread loads at once


def launches(nbytes: int, workgroups: int) -> tuple[Launch, ...]:
    """Return the launch that reads all whole chunks of `nbytes` of input 0."""
    operands = (Operand(Kind.INPUT), Operand(Kind.OUTPUT, reads=False, writes=True))
    scalars = READ_MEMORY.pack(count=nbytes // CHUNK, workgroups=workgroups)
    return (Launch("read_memory", operands, scalars, (workgroups, 1, 1)),)
