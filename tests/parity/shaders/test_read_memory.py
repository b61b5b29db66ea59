"""The kernel that reads memory for the ceiling really reads all of it."""

import numpy as np
import pytest
from run_op import Memory, run_launches

from edgequant.device.protocol import Gpu
from edgequant.graph.kernels import read_memory

pytestmark = pytest.mark.device

FOUND = 0x5A17C0DE  # what the kernel tells of


@pytest.mark.parametrize("place", [None, 0, 208, 255, 256, 3 * 256 + 7, 1999, 2048])
def test_every_chunk_is_read(gpu: Gpu, place: int | None) -> None:
    """Of 2000, thread 208 has no chunk where its last would be: a round is 1024."""
    content = np.zeros((2049 if place == 2048 else 2000, 4), np.uint32)
    content[-1] = 1, 2, 4, 8  # hides what is found, where it is taken once more
    if place is not None:
        content[place] = 0
        content[place, place % 4] = FOUND
    memory = Memory(gpu)
    memory.put("INPUT", content.tobytes())
    memory.put("OUTPUT", bytes(4))
    launches = read_memory.launches(content.nbytes, 1)
    run_launches(gpu, launches, lambda operand: memory[operand.kind.name])
    assert memory.get("OUTPUT", np.uint32)[0] == (FOUND if place is not None else 0)
    memory.check({"OUTPUT"})
    memory.free()
