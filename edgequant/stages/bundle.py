"""A model becomes a folder that an app without Python can run: weights, kernels, and what to do.

The program is loaded on a GPU that computes nothing, with the limits that the target's GPUs are
assumed to have, and what it records is written down.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgequant.device.gpu import GpuDevice
from edgequant.device.null import NullGpu
from edgequant.device.program import GpuProgram
from edgequant.device.targets import Target, find_target
from edgequant.device.transcript import Transcript, write_down
from edgequant.errors import DeviceError
from edgequant.gguf.parts import part_path
from edgequant.graph.launch import Limits
from edgequant.progress import SILENT, Progress
from edgequant.runtime.model import Model, open_model
from edgequant.shipped import shipped
from edgequant.stages.bundle_manifest import (
    MANIFEST,
    PIECES,
    TABLES,
    TOKENIZER,
    make_manifest,
    pieces,
    to_json,
)
from edgequant.stages.bundle_readme import make_readme
from edgequant.stages.whole_folder import (
    check_folder,
    copy_file,
    link_file,
    whole_folder,
    write_file,
)
from edgequant.tokenizer.to_json import tokenizer_json


@dataclass(frozen=True)
class BundleReport:
    """What is in a bundle.

    Attributes:
        path: of the folder.
        target: what it is for.
        bytes: of all files.
        model_bytes: of those that are the model.
        linked: the model's files are second names of those given, and take no room of their own.
        files: bytes by name.
        kernels: files of kernels.
        pipelines: kernels with their constants.
        recordings: steps of different sizes.
        decode_dispatches: of a step that decodes one token in the smallest context.
        context: tokens at most.
        cache: type of the KV cache.
        memory_bytes: of all buffers, weights included.
        limits: that were assumed.
        seconds: of work.
    """

    path: str
    target: str
    bytes: int
    model_bytes: int
    linked: bool
    files: Mapping[str, int]
    kernels: int
    pipelines: int
    recordings: int
    decode_dispatches: int
    context: int
    cache: str
    memory_bytes: int
    limits: Limits
    seconds: float


def bundle(
    model: Path,
    output: Path,
    *,
    target: str,
    limits: Limits | None = None,
    context: int | None = None,
    cache: str = "f16",
    link: bool = False,
    force: bool = False,
    progress: Progress = SILENT,
) -> BundleReport:
    """Write a bundle.

    Args:
        model: a GGUF file, or the first of its parts.
        output: the folder, which appears whole or not at all.
        target: one of `TARGETS`.
        limits: to assume; None for the target's.
        context: tokens the KV cache holds; None as of `open_model`.
        cache: type of the KV cache: "f16", "q8_0" or "f32".
        link: make hard links of the model's files instead of copies.
        force: replace a bundle that is there.
        progress: told of bytes as they are written.

    Raises:
        UnsupportedError: an unknown target; or a model that cannot be run.
        DeviceError: a format without a kernel; limits that kernels do not fit.
        FileError: the folder cannot be written, or its disk is too small.
    """
    started = time.monotonic()
    chosen = find_target(target)
    assumed = limits or chosen.limits
    check_folder(output, MANIFEST, force=force, inputs=[model])
    progress.begin("record", 1, "models")
    made = _write_down(model, chosen, assumed, context, cache)
    content, transcript = made.content, made.transcript
    check_folder(output, MANIFEST, force=force, inputs=list(made.names))
    model_sizes = {name: path.stat().st_size for path, name in made.names.items()}
    model_bytes = sum(model_sizes.values())
    written = sum(map(len, content.values())) + (0 if link else model_bytes)
    progress.begin("bundle", written, "bytes")
    with whole_folder(output, written) as folder:
        (folder / "kernels").mkdir()
        for name, data in content.items():
            write_file(folder / name, data)
            progress.advance(len(data), name)
        for path, name in made.names.items():
            if link:
                link_file(path, folder / name)
            else:
                copy_file(path, folder / name, progress)
    progress.end()
    sizes = {name: len(data) for name, data in content.items()} | model_sizes
    return BundleReport(
        path=str(output),
        target=target,
        bytes=sum(sizes.values()),
        model_bytes=model_bytes,
        linked=link,
        files=sizes,
        kernels=len(transcript.kernels),
        pipelines=len(transcript.pipelines),
        recordings=len(transcript.recordings),
        decode_dispatches=_decode_dispatches(transcript),
        context=made.context,
        cache=cache,
        memory_bytes=_memory(transcript),
        limits=assumed,
        seconds=time.monotonic() - started,
    )


@dataclass(frozen=True)
class _Made:
    """All of a bundle but the model: what the model's files are called, and other files' content.

    Attributes:
        names: of the model's files in the bundle.
        content: of the other files, by name.
        transcript: what the manifest says of the program.
        context: tokens at most.
    """

    names: Mapping[Path, str]
    content: Mapping[str, bytes]
    transcript: Transcript
    context: int


def _write_down(
    path: Path, target: Target, limits: Limits, context: int | None, cache: str
) -> _Made:
    """Load a model on a GPU that computes nothing, and write down what it records."""
    gpu = NullGpu(limits, f"bundle for {target.name}")
    try:
        model = open_model(path, GpuDevice(gpu.name, gpu, cache=cache), context=context)
    except DeviceError as error:
        raise DeviceError(error.what, hint=_without_device(error.hint)) from None
    with model:
        names = _names(model.file.paths)
        transcript = _transcript(model, gpu, target, names)
        files = [{"file": name, "bytes": at.stat().st_size} for at, name in names.items()]
        manifest = make_manifest(model, target, limits, transcript, files)
        tokenizer = tokenizer_json(model.file.values(), model.tokenizer)
        content = {
            MANIFEST: to_json(manifest),
            "README.md": make_readme(manifest, target, _memory(transcript)),
            TABLES: transcript.tables,
            TOKENIZER: json.dumps(tokenizer).encode(),
            PIECES: pieces(model.tokenizer),
        }
        kernels = {file.path: f"kernels/{file.path.name}" for file in transcript.kernels}
        content |= {name: at.read_bytes() for at, name in kernels.items()}
        return _Made(names, content, transcript, model.context)


def _without_device(hint: str) -> str:
    """Return what a hint says beside using another device, which a bundle has not."""
    hint = hint.removeprefix("use --device cpu, or ")
    return "run the model with edgequant itself, on the cpu." if "--device" in hint else hint


def _transcript(
    model: Model, gpu: NullGpu, target: Target, names: Mapping[Path, str]
) -> Transcript:
    program = model.program
    assert isinstance(program, GpuProgram), "a GpuDevice makes no other"
    shaders = shipped("shaders")
    return write_down(
        program.repertoire(),
        gpu,
        model.file.weights(),
        lambda kernel: target.language.find(shaders, kernel),
        names,
        TABLES,
    )


def _names(paths: Sequence[Path]) -> dict[Path, str]:
    """Return what the model's files are called in the bundle; parts keep their numbers."""
    plain = Path("model.gguf")
    if len(paths) == 1:
        return {paths[0]: plain.name}
    return {path: part_path(plain, n, len(paths)).name for n, path in enumerate(paths)}


def _decode_dispatches(transcript: Transcript) -> int:
    recording = next(
        item for item in transcript.recordings if (item["purpose"], item["tokens"]) == ("draw", 1)
    )
    dispatches = recording["dispatches"]
    assert isinstance(dispatches, list)
    return len(dispatches)


def _memory(transcript: Transcript) -> int:
    """Return the bytes of all buffers."""
    return sum(int(str(item["bytes"])) for item in transcript.buffers)
