"""llama.cpp's own quantizer of whole files, through llama-cpp-python."""

import ctypes
from pathlib import Path

import numpy as np
import pytest

from edgequant.model.importance import ImportanceMatrix


def llama_quantize(
    source: Path, target: Path, file_type: int, matrix: ImportanceMatrix | None = None
) -> None:
    """Write `target` as llama-quantize does, for a value of general.file_type."""
    llama_cpp = pytest.importorskip("llama_cpp")
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = file_type
    params.nthread = 1
    kept = []  # what C holds a pointer to must live
    if matrix is not None:
        entry_type = llama_cpp.llama_model_imatrix_data
        entries = (entry_type * (len(matrix.entries) + 1))()
        for slot, (name, entry) in zip(entries, matrix.entries.items(), strict=False):
            values = np.ascontiguousarray(entry.mean().reshape(-1))
            kept.append(values)
            slot.name, slot.size = name.encode(), values.size
            slot.data = values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        params.imatrix = ctypes.cast(entries, ctypes.POINTER(entry_type))
    assert not llama_cpp.llama_model_quantize(bytes(source), bytes(target), ctypes.byref(params))
