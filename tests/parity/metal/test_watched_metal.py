"""What kernels touch, in a model's own steps: barriers follow from what they are said to."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from metal_on_cpu.library import compile_library
from pretend_metal import PretendMetal
from pretend_metal.declaring import declare

from edgequant.device.gpu import GpuDevice
from edgequant.device.metal.device import Metal
from edgequant.device.protocol import Generator, Observer, Sampling
from edgequant.device.unified import UnifiedGpu
from edgequant.runtime.model import open_model
from edgequant.shipped import shipped

pytestmark = [pytest.mark.device, pytest.mark.metal, pytest.mark.slow]


@pytest.mark.usefixtures("mac")
@pytest.mark.parametrize("exact", [False, True])
def test_kernels_touch_what_they_say_and_without_races(path: Path, exact: bool) -> None:
    watched = PretendMetal(partial(compile_library, sanitize=True))
    gpu = UnifiedGpu(Metal(watched, shipped("shaders")))
    declare(gpu, watched.declared)
    ids = np.arange(12, dtype=np.int32)
    with open_model(path, GpuDevice("metal", gpu, exact=exact), context=64) as model:
        first = int(model.program.run(ids, 0).argmax())
        assert isinstance(model.program, Generator)
        assert len(list(model.program.generate(first, 12, 2, Sampling(temperature=0)))) == 2
        assert isinstance(model.program, Observer)
        model.program.observe(ids[:3], 0)
    gpu.close()
    assert watched.alive() == []
