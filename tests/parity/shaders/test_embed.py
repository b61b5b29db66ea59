"""Every format's decoding on GPUs, through the embedding."""

import numpy as np
import pytest
from run_op import nmse, poisoned, reference, run_op
from shader_weights import FORMATS, lengths, random_weight

from edgequant.device.protocol import Gpu
from edgequant.graph.ops.embed import Embed

pytestmark = pytest.mark.device

# Decoding is one multiplication and one subtraction, at most fused: a rounding or two of 6e-8.
BOUND = 1e-13


@pytest.mark.parametrize("fmt", FORMATS)
def test_rows_of_every_format(gpu: Gpu, fmt: str, rng: np.random.Generator) -> None:
    for columns in lengths(fmt):
        weight = random_weight(fmt, 19, columns, rng)
        ids = [18, 0, 7, 7, 3]
        ran = run_op(gpu, Embed(columns), weights=[weight], ids=ids, bucket=8)
        expected = reference(Embed(columns), weights=[weight], ids=ids)
        assert nmse(ran.out, expected.out) < BOUND
        assert poisoned(ran.padding)
