"""llama.cpp as a device, through llama-cpp-python's low-level API: the fast CPU engine.

It opens the model file anew, so the graph only says which weights are multiplied; attention, rope
and the rest are llama.cpp's own, and its KV cache is float16. It computes on the CPU alone,
whatever the library was built with. What it rounds activations to depends on the file's formats.

Checked against llama-cpp-python 0.3.36 (llama.cpp 0c1e57098).
"""

import ctypes
import os
from collections import deque
from functools import cache
from importlib import import_module, metadata
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from edgequant.blocks import Floats, Weights
from edgequant.device import Choice, Entry
from edgequant.device.memory import available_bytes
from edgequant.device.protocol import Program, Tokens
from edgequant.errors import DeviceError
from edgequant.graph import Graph
from edgequant.graph.caches import caches
from edgequant.graph.ops.linear import Linear

BATCH = 512  # llama.cpp's n_ubatch: tokens it computes at once

# What the CPU's matrix product rounds its other side to, by weight type; K- and I-quants: q8_K.
# Source: vec_dot_type of type_traits_cpu, ggml-cpu.c at 0c1e57098.
_ROUNDED = {
    "F32": "float32", "F16": "float16", "BF16": "bfloat16", "Q4_0": "q8_0", "Q4_1": "q8_1",
    "Q5_0": "q8_0", "Q5_1": "q8_1", "Q8_0": "q8_0", "IQ4_NL": "q8_0", "MXFP4": "q8_0",
}  # fmt: skip
_WARN, _CONTINUED = 3, 5  # of ggml_log_level
_complaints: deque[str] = deque(maxlen=8)


@cache
def _library() -> Any:
    """Load llama.cpp, and keep what it would write to stderr in `_complaints`."""
    library = import_module("llama_cpp")

    @library.llama_log_callback  # type: ignore[untyped-decorator]
    def keep(level: int, text: bytes, _user_data: object) -> None:
        if _WARN <= level < _CONTINUED:
            _complaints.append(" ".join(text.decode("utf-8", "replace").split()))

    _callbacks.append(keep)
    library.llama_log_set(keep, ctypes.c_void_p(0))
    library.llama_backend_init()
    return library


_callbacks: list[object] = []  # what C holds a pointer to must not be collected


def _missing() -> str | None:
    try:
        library = _library()
    except ModuleNotFoundError as error:
        if error.name == "llama_cpp":
            return 'llama-cpp-python is not installed (pip install "edgequant[llama]").'
        return f"llama-cpp-python lacks the module {error.name}."
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        return f"llama-cpp-python does not load: {error}"
    if not hasattr(library, "llama_memory_seq_rm"):
        return f"llama-cpp-python is {library.__version__}, but 0.3.36 is needed."
    return None


def _physical_cores() -> int:
    """Return how many cores this process may use, two threads of one core counted once."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    siblings = set()
    for number in allowed:
        path = Path(f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list")
        try:
            siblings.add(path.read_text())
        except OSError:
            return len(allowed)
    return len(siblings) or os.cpu_count() or 1


class _Batch:
    """A llama_batch of up to BATCH tokens of sequence 0."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self.raw = library.llama_batch_init(BATCH, 0, 1)
        view = np.ctypeslib.as_array
        self._token = view(self.raw.token, (BATCH,))
        self._position = view(self.raw.pos, (BATCH,))
        self._wanted = view(self.raw.logits, (BATCH,))
        view(self.raw.n_seq_id, (BATCH,))[:] = 1
        for i in range(BATCH):
            self.raw.seq_id[i][0] = 0

    def fill(self, tokens: Tokens, past: int, wanted: int) -> None:
        """Put in tokens at positions past..; logits are wanted of the last `wanted`."""
        n = len(tokens)
        self.raw.n_tokens = n
        self._token[:n] = tokens
        self._position[:n] = np.arange(past, past + n)
        self._wanted[:n] = np.arange(n) >= n - wanted

    def free(self) -> None:
        """Give its memory back."""
        self._library.llama_batch_free(self.raw)


class _LlamaProgram:
    """A model and a context of llama.cpp."""

    def __init__(self, library: Any, path: Path, *, context: int, threads: int) -> None:
        self.context = context
        self._library = library
        self._path = path
        self._context: Any = None
        self._batch: _Batch | None = None
        _complaints.clear()
        self._model = library.llama_model_load_from_file(os.fsencode(path), _model_params(library))
        if not self._model:
            raise _failure(path, "llama.cpp cannot load it")
        self._context = library.llama_init_from_model(
            self._model, _context_params(library, context, threads)
        )
        if not self._context:
            self.close()
            raise _failure(path, f"llama.cpp cannot make a context of {context:,} tokens")
        self._memory = library.llama_get_memory(self._context)
        self._vocab = library.llama_vocab_n_tokens(library.llama_model_get_vocab(self._model))
        self._batch = _Batch(library)

    def run(self, tokens: Tokens, past: int, *, rows: int = 1) -> Floats:
        """Feed tokens and return the logits of the last `rows`; see `Program`."""
        if self._batch is None:
            raise ValueError("the program is closed")
        # Also after an interrupt, the cache then holds exactly what the caller believes.
        self._library.llama_memory_seq_rm(self._memory, 0, past, -1)
        logits = np.empty((rows, self._vocab), dtype=np.float32)
        first = len(tokens) - rows
        for start in range(0, len(tokens), BATCH):
            stop = min(start + BATCH, len(tokens))
            wanted = max(0, stop - max(start, first))
            self._batch.fill(tokens[start:stop], past + start, wanted)
            code = self._library.llama_decode(self._context, self._batch.raw)
            if code:
                raise _failure(
                    self._path,
                    f"llama.cpp's decode of {stop - start:,} tokens at position {past + start:,} "
                    f"of {self.context:,} gives code {code}",
                )
            if wanted:
                found = self._library.llama_get_logits(self._context)
                done = stop - first
                logits[done - wanted : done] = np.ctypeslib.as_array(found, (wanted, self._vocab))
        return logits

    def close(self) -> None:
        """Give its memory back."""
        if self._batch:
            self._batch.free()
        if self._context:
            self._library.llama_free(self._context)
        if self._model:
            self._library.llama_model_free(self._model)
        self._batch = self._context = self._model = None


def _model_params(library: Any) -> Any:
    params = library.llama_model_default_params()
    params.n_gpu_layers = 0
    # An AMX build crashes at the first product of a quantized model when made with gcc 12: it
    # drops the tile configuration's stores. The plain kernels are what AMX's would replace.
    params.use_extra_bufts = not _uses_amx(library.llama_print_system_info())
    return params


def _uses_amx(system_info: bytes) -> bool:
    return b"AMX_INT8 = 1" in system_info


def _context_params(library: Any, context: int, threads: int) -> Any:
    params = library.llama_context_default_params()
    params.n_ctx = context
    params.n_batch = params.n_ubatch = BATCH
    params.n_threads = params.n_threads_batch = threads
    params.offload_kqv = params.op_offload = False
    params.n_outputs_max_per_seq = 0  # as many as asked for
    return params


def _check_memory(graph: Graph, context: int) -> None:
    """Refuse what the system would kill us for: llama.cpp writes zeros to its whole cache."""
    cache = sum(2 * 2 * context * prod(width) for width in caches(graph).values())
    wanted, free = cache + 4 * BATCH * context, available_bytes()
    if wanted > free:
        raise DeviceError(
            f"llama: the KV cache and attention mask of a context of {context:,} take {wanted:,} "
            f"bytes; {free:,} are free.",
            hint="use a smaller --ctx.",
        )


def _failure(path: Path, what: str) -> DeviceError:
    said = " / ".join(_complaints)
    return DeviceError(
        f"{path}: {what}{f' ({said})' if said else ''}.",
        hint="use a smaller --ctx if memory is short, or --device cpu.",
    )


class LlamaDevice:
    """Implements `Device`; `activations` speaks of the files loaded so far."""

    name = "llama"
    cache = "f16"

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._library = _library()
        self.activations = "depends on the weights' formats"
        self._rounded: set[str] = set()
        self.description = (
            f"llama.cpp (llama-cpp-python {metadata.version('llama-cpp-python')}), CPU, "
            f"{threads} {'thread' if threads == 1 else 'threads'}, float16 KV cache"
        )

    def load(self, graph: Graph, weights: Weights, *, context: int) -> Program:
        """Open the weights' file in llama.cpp.

        Raises:
            DeviceError: it does not load, or there is not enough memory; with what llama.cpp said.
        """
        _check_memory(graph, context)
        program = _LlamaProgram(self._library, weights.path, context=context, threads=self.threads)
        for node in graph.nodes:
            if isinstance(node.op, Linear):
                kinds = (weights[name].type.name for name in node.weights)
                self._rounded.update(_ROUNDED.get(kind, "q8_K") for kind in kinds)
        self.activations = " + ".join(sorted(self._rounded)) or self.activations
        return program


def _open(index: str, _choice: Choice) -> LlamaDevice:
    """Open the device; "llama:3" computes with 3 threads, "llama" with one a physical core."""
    if not index:
        return LlamaDevice(_physical_cores())
    if not index.isascii() or not index.isdigit() or not 1 <= int(index) <= 512:
        raise DeviceError(
            f"llama:{index}: what follows the colon is a number of threads, 1 to 512.",
            hint="use --device llama:4 for four threads.",
        )
    return LlamaDevice(int(index))


DEVICE = Entry(name="llama", rank=50, missing=_missing, open=_open, exact=False)
