"""llama.cpp's own quantizer of whole files, through llama-cpp-python."""

import ctypes
from pathlib import Path

import numpy as np
import pytest

from edgequant.blocks import BLOCK_TYPES
from edgequant.model.importance import ImportanceMatrix
from edgequant.model.overrides import NOTHING, Overrides


def llama_quantize(
    source: Path,
    target: Path,
    file_type: int,
    matrix: ImportanceMatrix | None = None,
    overrides: Overrides = NOTHING,
) -> None:
    """Write `target` as llama-quantize does, for a value of general.file_type."""
    llama_cpp = pytest.importorskip("llama_cpp")
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = file_type
    params.nthread = 1
    params.pure = overrides.pure
    params.quantize_output_tensor = not overrides.keep_output
    if overrides.output:
        params.output_tensor_type = BLOCK_TYPES[overrides.output].ggml_id
    if overrides.embedding:
        params.token_embedding_type = BLOCK_TYPES[overrides.embedding].ggml_id
    patterns = (llama_cpp.llama_cpp.llama_model_tensor_override * (len(overrides.patterns) + 1))()
    for pattern, (regex, fmt) in zip(patterns, overrides.patterns, strict=False):
        pattern.pattern, pattern.type = regex.encode(), BLOCK_TYPES[fmt].ggml_id
    params.tt_overrides = patterns
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
