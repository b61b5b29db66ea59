"""ggml's own quantizer, out of the library that llama-cpp-python carries, and how to compare."""

import ctypes
import importlib.util
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import gguf
import ml_dtypes  # noqa: F401 -- teaches NumPy the bfloat16 that the checkpoints hold
import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from edgequant.blocks import BLOCK_TYPES, Bytes, Floats

PARTS = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}  # fmt: skip


@cache
def library() -> ctypes.CDLL:
    """Load libggml-base; importing llama_cpp would load all of llama.cpp."""
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        raise ImportError("llama-cpp-python is not installed")
    name = "libggml-base.dylib" if sys.platform == "darwin" else "libggml-base.so"
    loaded = ctypes.CDLL(str(Path(spec.origin).parent / "lib" / name))
    loaded.ggml_quantize_chunk.restype = ctypes.c_size_t
    loaded.ggml_quantize_chunk.argtypes = [
        ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p,
        ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p,
    ]  # fmt: skip
    return loaded


def ggml_quantize(name: str, rows: Floats, importance: Floats | None) -> Bytes:
    """Encode (rows, columns) float32 with ggml -> (rows, row bytes)."""
    kind = BLOCK_TYPES[name]
    count, columns = rows.shape
    rows = np.ascontiguousarray(rows)
    encoded = np.empty((count, kind.row_nbytes(columns)), np.uint8)
    library().ggml_quantize_init(kind.ggml_id)
    written = library().ggml_quantize_chunk(
        kind.ggml_id, rows.ctypes.data, encoded.ctypes.data, 0, count, columns,
        None if importance is None else np.ascontiguousarray(importance).ctypes.data,
    )  # fmt: skip
    assert written == encoded.nbytes
    return encoded


def relative_error(rows: Floats, back: Floats, importance: Floats | None) -> float:
    """Sum of q (x - x̂)² over sum of q x², in float64; q is the importance, or 1."""
    exact = rows.astype(np.float64)
    weight = 1.0 if importance is None else importance.astype(np.float64)
    return float((weight * (exact - back) ** 2).sum() / (weight * exact**2).sum())


def matrices(checkpoint: Path) -> Iterator[tuple[str, Floats]]:
    """Yield the matrices of a Llama or Gemma checkpoint under their GGUF names.

    Conversion permutes rows of q and k, never columns, so errors are the same.
    """
    for shard in sorted(checkpoint.glob("*.safetensors")):
        with safe_open(shard, "numpy") as file:
            for name in file.keys():  # noqa: SIM118 -- not a mapping
                tensor: NDArray[np.generic] = file.get_tensor(name)
                if tensor.ndim == 2:
                    yield gguf_name(name), tensor.astype(np.float32)


def gguf_name(name: str) -> str:
    """Return what llama.cpp calls a weight of a Hugging Face Llama or Gemma."""
    found = re.fullmatch(r"(?:model\.)?layers\.(\d+)\.(.+)\.weight", name)
    if found:
        return f"blk.{found[1]}.{PARTS[found[2]]}.weight"
    return "token_embd.weight" if name.endswith("embed_tokens.weight") else "output.weight"


def importances(path: Path) -> dict[str, Floats]:
    """Read llama-imatrix's GGUF: the mean squared activation of each column, by weight."""
    raw = {t.name: np.array(t.data, np.float32).ravel() for t in gguf.GGUFReader(path).tensors}
    sums = {name.removesuffix(".in_sum2"): v for name, v in raw.items() if name.endswith("in_sum2")}
    return {name: v / raw[f"{name}.counts"][0] for name, v in sums.items()}
