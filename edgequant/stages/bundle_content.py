"""What is in a bundle beside the model: manifests, kernels, tables, the tokenizer, a README.

The model is loaded once for each subgroup size, on a GPU that computes nothing. It writes no file.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgequant.device.gpu import GpuDevice
from edgequant.device.null import NullGpu
from edgequant.device.program import GpuProgram
from edgequant.device.protocol import Program
from edgequant.device.targets import Target
from edgequant.device.transcript import Transcript, write_down
from edgequant.errors import DeviceError
from edgequant.gguf.parts import part_path
from edgequant.graph.launch import Limits
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
from edgequant.tokenizer.to_json import tokenizer_json


@dataclass(frozen=True)
class Content:
    """All of a bundle but the model's bytes.

    Attributes:
        names: of the model's files in the bundle.
        content: of the other files, by name.
        transcripts: what each manifest says of the program.
        context: tokens at most.
    """

    names: Mapping[Path, str]
    content: Mapping[str, bytes]
    transcripts: tuple[Transcript, ...]
    context: int


def write_down_all(
    path: Path, target: Target, assumed: Sequence[Limits], context: int | None, cache: str
) -> Content:
    """Make a bundle's content.

    Args:
        path: the model.
        target: what for.
        assumed: limits, of which each gets a manifest; they differ in `subgroup`.
        context: tokens of the KV cache; None as of `open_model`.
        cache: type of the KV cache.

    Raises:
        EdgequantError: what `bundle` says.
    """
    gpus = [NullGpu(limits, f"bundle for {target.name}") for limits in assumed]
    devices = [GpuDevice(gpu.name, gpu, cache=cache) for gpu in gpus]
    marks = ["", *(f"-{limits.subgroup}" for limits in assumed[1:])]
    manifests = [
        {"file": _marked(MANIFEST, mark), "subgroup": limits.subgroup}
        for limits, mark in zip(assumed, marks, strict=True)
    ]
    content: dict[str, bytes] = {}
    tables, transcripts = bytearray(), []
    try:
        with open_model(path, devices[0], context=context) as model:
            names = _names(model.file.paths)
            files = [{"file": name, "bytes": at.stat().st_size} for at, name in names.items()]
            for gpu, device, mark in zip(gpus, devices, marks, strict=True):
                program = model.program if device is devices[0] else _load(model, device)
                told = _transcript(program, gpu, model, target, names, tables)
                made = make_manifest(model, target, gpu.limits, told, files, manifests)
                content[_marked(MANIFEST, mark)] = to_json(made)
                transcripts.append(told)
            tokenizer = tokenizer_json(model.file.values(), model.tokenizer)
            length, texts = model.context, pieces(model.tokenizer)
    except DeviceError as error:
        raise DeviceError(error.what, hint=_without_device(error.hint)) from None
    content |= {
        TABLES: bytes(tables),
        TOKENIZER: json.dumps(tokenizer).encode(),
        PIECES: texts,
    }
    kernels = {file.path for told in transcripts for file in told.kernels}
    content |= {f"kernels/{at.name}": at.read_bytes() for at in sorted(kernels)}
    content["README.md"] = make_readme(
        json.loads(content[MANIFEST]), target, len(kernels), max(map(memory_of, transcripts))
    )
    return Content(names, content, tuple(transcripts), length)


def memory_of(transcript: Transcript) -> int:
    """Return the bytes of all buffers."""
    return sum(int(str(item["bytes"])) for item in transcript.buffers)


def decode_dispatches(transcript: Transcript) -> int:
    """Return the dispatches of a step that decodes a token in the smallest context."""
    recording = next(
        item for item in transcript.recordings if (item["purpose"], item["tokens"]) == ("draw", 1)
    )
    dispatches = recording["dispatches"]
    assert isinstance(dispatches, list)
    return len(dispatches)


def _load(model: Model, device: GpuDevice) -> Program:
    return device.load(model.graph, model.file.weights(), context=model.context)


def _transcript(
    program: Program,
    gpu: NullGpu,
    model: Model,
    target: Target,
    names: Mapping[Path, str],
    tables: bytearray,
) -> Transcript:
    assert isinstance(program, GpuProgram), "a GpuDevice makes no other"
    shaders = shipped("shaders")
    return write_down(
        program.repertoire(),
        gpu,
        model.file.weights(),
        lambda kernel: target.language.find(shaders, kernel),
        names,
        tables,
        TABLES,
    )


def _marked(name: str, mark: str) -> str:
    """Return a file's name with a mark before its suffix."""
    path = Path(name)
    return f"{path.stem}{mark}{path.suffix}"


def _names(paths: Sequence[Path]) -> dict[Path, str]:
    """Return what the model's files are called in the bundle; parts keep their numbers."""
    plain = Path("model.gguf")
    if len(paths) == 1:
        return {paths[0]: plain.name}
    return {path: part_path(plain, n, len(paths)).name for n, path in enumerate(paths)}


def _without_device(hint: str) -> str:
    """Return what a hint says beside using another device, which a bundle has not."""
    hint = hint.removeprefix("use --device cpu, or ")
    return "run the model with edgequant itself, on the cpu." if "--device" in hint else hint
