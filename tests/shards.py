"""Shards written byte by byte, so that a test can write a wrong one."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np

NAMES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "uint8": "U8",
         "float8_e4m3fn": "F8_E4M3"}  # fmt: skip
BF16 = np.dtype(ml_dtypes.bfloat16)


def write_raw(path: Path, header: object, body: bytes = b"", *, length: int | None = None) -> Path:
    """Write a header (JSON text, or what becomes it) and a body as they are."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + body)
    return path


def write_shard(path: Path, tensors: Mapping[str, np.ndarray]) -> Path:
    """Write a well-formed shard."""
    header, body = {}, b""
    for name, values in tensors.items():
        offsets = [len(body), len(body) + values.nbytes]
        header[name] = {
            "dtype": NAMES[values.dtype.name],
            "shape": list(values.shape),
            "data_offsets": offsets,
        }
        body += values.tobytes()
    return write_raw(path, header, body)
