"""Block formats: how bits hold weights. One format a file; the registry finds the files.

A format file reads as a specification: layout (one `np.dtype`), decode, encode, registration. What
is common to all (rows, chunks, threads) is in `format.py`; the scale searches are in `search.py`.
Formats know nothing of files, tensor names or models.
"""

from edgequant.formats.format import QuantFormat, dequantize, find, names, quantize, register

__all__ = ["QuantFormat", "dequantize", "find", "names", "quantize", "register"]
