"""Block formats: how bits hold weights. One format a file; the registry finds the files.

A format file reads as a specification: layout (one `np.dtype`), encode, decode, registration. What
is common to all (rows, pieces, importance) is in `format.py`. Encoders look for the scales that
lose least: `costs.py` says what an error on each weight costs, `affine.py` and
`symmetric.py` fit blocks (`search.py` has what they share), `superblock.py` and `signed_codes.py`
choose the small integers that stand for scales in a K-quant. All of it is NumPy, laid out
so that sums over a block add whole rows; chosen over a C extension because it reaches the speed of
ggml's encoders, and over ggml's own searches because it loses less (tests/parity and tests/bench
have the figures). Formats know nothing of files, tensor names or models.
"""

from edgequant.formats.format import (
    Encoder,
    QuantFormat,
    dequantize,
    find,
    names,
    quantize,
    register,
)
from edgequant.formats.search import Effort

__all__ = [
    "Effort",
    "Encoder",
    "QuantFormat",
    "dequantize",
    "find",
    "names",
    "quantize",
    "register",
]
