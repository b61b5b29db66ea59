"""The Metal host on a pretend runtime, with a kernel written in Python."""

import mmap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from add_one_kernel import ADD_ONE, SCALED, AddOne
from pretend_metal import PretendMetal

from edgequant.device.metal.device import Metal
from edgequant.device.unified import UnifiedGpu


@pytest.fixture
def shaders(tmp_path: Path) -> Path:
    folder = tmp_path / "shaders" / "generated" / "metal"
    folder.mkdir(parents=True)
    (folder / "add_one.metal").write_text(ADD_ONE)
    (folder / "scaled.metal").write_text(SCALED)
    return tmp_path / "shaders"


@pytest.fixture
def compiler() -> AddOne:
    return AddOne()


@pytest.fixture
def mac(compiler: AddOne) -> PretendMetal:
    return PretendMetal(compiler)


@pytest.fixture
def gpu(mac: PretendMetal, shaders: Path) -> Iterator[UnifiedGpu]:
    opened = UnifiedGpu(Metal(mac, shaders))
    yield opened
    opened.close()
    assert mac.alive() == []


@pytest.fixture
def mapped(tmp_path: Path) -> Iterator[memoryview]:
    """A mapped file of floats 0, 1, 2 and so on, some pages long and not whole pages."""
    path = tmp_path / "floats"
    path.write_bytes(np.arange(3 * mmap.PAGESIZE // 4 + 5, dtype=np.float32).tobytes())
    with path.open("rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return memoryview(mapping)
