"""The scale searches."""

import numpy as np

from edgequant.blocks import Floats


def inverse(values: Floats) -> Floats:
    """1 / values, and 0 where that would not be a normal float32."""
    normal = np.abs(values) > np.float32(1e-37)
    return np.divide(1, values, out=np.zeros_like(values), where=normal)
