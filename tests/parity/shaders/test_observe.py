"""The sums of squares behind an importance matrix."""

import numpy as np
import pytest
from run_op import Memory, nmse, run_launches, step_record

from edgequant.blocks import BLOCK_TYPES
from edgequant.device.protocol import Gpu
from edgequant.graph.kernels import observe
from edgequant.graph.launch import Call, Kind

pytestmark = pytest.mark.device


@pytest.mark.parametrize("columns", [1, 63, 64, 65, 1000])
@pytest.mark.parametrize(("tokens", "bucket"), [(1, 1), (5, 8), (64, 64)])
def test_sums_grow(
    gpu: Gpu, columns: int, tokens: int, bucket: int, rng: np.random.Generator
) -> None:
    x = np.full((bucket, columns), np.nan, np.float32)
    x[:tokens] = rng.standard_normal((tokens, columns)) * np.exp(rng.standard_normal(columns))
    before = rng.random(columns, np.float32)
    memory = Memory(gpu)
    memory.put(Kind.INPUT, x.tobytes())
    memory.put(Kind.OUTPUT, before.tobytes())
    memory.put(Kind.STEP, step_record(tokens=tokens).tobytes())
    call = Call(bucket, 1, 1, 1, (), BLOCK_TYPES["F16"], gpu.limits, inputs=(x.shape,))
    run_launches(gpu, observe.launches(call), lambda operand: memory[operand.kind], times=2)
    memory.check({Kind.OUTPUT})
    exact = before + 2 * np.square(x[:tokens].astype(np.float64)).sum(axis=0)
    assert nmse(memory.get(Kind.OUTPUT), exact) < 1e-12  # 64 roundings of 6e-8, squared
    memory.free()
