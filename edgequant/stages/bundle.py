"""A model becomes a folder that an app without Python can run: weights, kernels, and what to do.

The program is loaded on a GPU that computes nothing, with the limits that the target's GPUs are
assumed to have, and what it records is written down.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

from edgequant.device.gpu import GpuDevice
from edgequant.device.kernel_files import SPIRV
from edgequant.device.null import NullGpu
from edgequant.device.program import GpuProgram
from edgequant.device.targets import Target, find_target
from edgequant.device.transcript import Transcript, write_down
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
from edgequant.stages.whole_folder import (
    check_folder,
    copy_file,
    link_file,
    whole_folder,
    write_file,
)
from edgequant.tokenizer.to_json import tokenizer_json

_TEXTS = Path(__file__).with_name("bundle_text")


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
    gpu = NullGpu(assumed, f"bundle for {target}")
    progress.begin("record", 1, "models")
    with open_model(model, GpuDevice(gpu.name, gpu, cache=cache), context=context) as opened:
        paths = opened.file.paths
        check_folder(output, MANIFEST, force=force, inputs=paths)
        names = _names(paths)
        transcript = _transcript(opened, gpu, chosen, names)
        described = [{"file": names[path], "bytes": path.stat().st_size} for path in paths]
        manifest = make_manifest(opened, chosen, assumed, transcript, described)
        keys = opened.file.values()
        content = {
            MANIFEST: to_json(manifest),
            TABLES: transcript.tables,
            TOKENIZER: json.dumps(tokenizer_json(keys, opened.tokenizer)).encode(),
            PIECES: pieces(opened.tokenizer),
        }
        progress.advance(1)
    content |= {f"kernels/{file.path.name}": file.path.read_bytes() for file in transcript.kernels}
    model_bytes = sum(path.stat().st_size for path in paths)
    memory = sum(int(str(item["bytes"])) for item in transcript.buffers)
    content["README.md"] = _readme(manifest, chosen, memory)
    written = sum(map(len, content.values())) + (0 if link else model_bytes)
    progress.begin("bundle", written, "bytes")
    with whole_folder(output, written) as folder:
        (folder / "kernels").mkdir()
        for name, data in content.items():
            write_file(folder / name, data)
            progress.advance(len(data), name)
        for path, name in names.items():
            if link:
                link_file(path, folder / name)
            else:
                copy_file(path, folder / name, progress)
    progress.end()
    sizes = {name: len(data) for name, data in content.items()}
    sizes |= {names[path]: path.stat().st_size for path in paths}
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
        context=opened.context,
        cache=cache,
        memory_bytes=memory,
        limits=assumed,
        seconds=time.monotonic() - started,
    )


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


def _readme(manifest: Mapping[str, Any], target: Target, memory: int) -> bytes:
    """Fill in what the README says of this bundle."""
    limits, matrix = manifest["limits"], manifest["limits"]["cooperative_matrix"]
    files = manifest["model"]["files"]
    api = "vulkan" if target.language is SPIRV else "metal"
    rows = [f"| `{one['file']}` | the weights, {one['bytes']:,} bytes |" for one in files]
    filled = Template(_TEXTS.joinpath("README.md").read_text("utf-8")).substitute(
        name=manifest["model"]["name"],
        target=target.name,
        api=api.capitalize(),
        host=_TEXTS.joinpath(f"{api}.md").read_text("utf-8").strip(),
        model_rows="\n".join(rows),
        kernels=len({item["kernel"] for item in manifest["pipelines"]}),
        memory=f"{memory:,} bytes",
        weights=f"{sum(b['bytes'] for b in manifest['buffers'] if b['holds'] == 'weights'):,}",
        subgroup=limits["subgroup"],
        workgroup=limits["workgroup"],
        shared=f"{limits['shared_bytes']:,}",
        max_buffer=f"{limits['max_buffer_bytes']:,}",
        matrix="none" if matrix is None else " x ".join(map(str, matrix)),
        integer_dot="yes" if limits["integer_dot"] else "no",
        why=target.why,
        version=manifest["version"],
        argument_bytes=limits["argument_bytes"],
        kind=manifest["tokenizer"]["kind"],
        needs=", ".join(f"`{key}`" for key in manifest["needs"]),
    )
    return filled.encode()
