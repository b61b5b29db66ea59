"""A model file made ready: checked against its architecture, its tokenizer read, on a device.

It holds the pieces together and computes nothing.
"""

import gc
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from edgequant.device.protocol import Device, Program
from edgequant.errors import UnsupportedError
from edgequant.gguf.reader import GGUFFile, open_file
from edgequant.graph import Graph
from edgequant.model.architecture import Architecture
from edgequant.model.hparams import HParams
from edgequant.model.registry import read_model
from edgequant.runtime.session import Session
from edgequant.tokenizer.from_gguf import read_tokenizer
from edgequant.tokenizer.tokenizer import Tokenizer

_INTERVAL = 1e-4  # seconds
DEFAULT_CONTEXT = 4096  # a KV cache for all that a 128k model can take would not fit most machines


@dataclass(frozen=True)
class Model:
    """An open model; a context manager that closes the program and the file.

    Attributes:
        path: the model file.
        file: open, its tensors mapped.
        hparams: its sizes.
        architecture: what it is.
        graph: its forward pass.
        tokenizer: from its keys.
        device: where it is loaded.
        program: the graph on the device.
        context: tokens its KV cache holds.
    """

    path: Path
    file: GGUFFile
    hparams: HParams
    architecture: Architecture
    graph: Graph
    tokenizer: Tokenizer
    device: Device
    program: Program
    context: int

    def session(self) -> Session:
        """Start with an empty cache; only one session of a model may be in use."""
        return Session(self.program, self.hparams.vocab, str(self.path))

    def close(self) -> None:
        """Give memory back."""
        self.program.close()
        self.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_model(
    path: Path, device: Device | Callable[[], Device], *, context: int | None = None
) -> Model:
    """Open a model file on a device.

    Args:
        path: a GGUF file.
        device: where to run it; or what opens that, while the tokenizer is read.
        context: tokens the KV cache must hold; None: as many as the model was trained for, at
            most `DEFAULT_CONTEXT`.

    Raises:
        FileError: no such file.
        GGUFError: broken, or its keys, tensors and tokenizer do not fit each other.
        UnsupportedError: an architecture, a tokenizer or a context that we cannot run.
        DeviceError: not enough memory; or what `device` raises.
    """
    file = open_file(path)
    try:
        keys = file.values()
        architecture, hparams = read_model(keys, file.tensors, str(path))
        length = _choose_context(path, hparams, context)
        graph = architecture.record(hparams)
        # A large vocabulary takes as long as copying a large model to a GPU, which needs Python
        # only now and then, but soon.
        with _in_haste(), ThreadPoolExecutor(1) as beside:
            reading = beside.submit(read_tokenizer, keys, str(path))
            opened = device() if callable(device) else device
            program = opened.load(graph, file.weights(), context=length)
        try:
            tokenizer = reading.result()
        except BaseException:
            program.close()
            raise
    except BaseException:
        file.close()
        raise
    return Model(path, file, hparams, architecture, graph, tokenizer, opened, program, length)


@contextmanager
def _in_haste() -> Iterator[None]:
    """Let no thread keep the others waiting for long, and look for no garbage: there is none."""
    interval, collects = sys.getswitchinterval(), gc.isenabled()
    sys.setswitchinterval(_INTERVAL)
    gc.disable()
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        if collects:
            gc.enable()


def _choose_context(path: Path, hparams: HParams, wanted: int | None) -> int:
    trained = hparams.context
    window = trained if hparams.window is None else hparams.window
    if wanted is None:
        return min(trained, window, DEFAULT_CONTEXT)
    if wanted > trained:
        raise UnsupportedError(
            f"{path}: a context of {wanted:,} tokens was asked for; the model was trained for "
            f"{trained:,}.",
            hint=f"ask for {min(trained, window):,} tokens or fewer.",
        )
    if wanted > window:  # attention is always over the whole context here
        raise UnsupportedError(
            f"{path}: a context of {wanted:,} tokens was asked for; the model attends over a "
            f"sliding window of {window:,}, and edgequant runs it only up to there.",
            hint=f"ask for {window:,} tokens or fewer.",
        )
    return wanted
