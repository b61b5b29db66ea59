"""A model becomes a folder that an app without Python can run: weights, kernels, and what to do.

The program is loaded on a GPU that computes nothing, with the limits that the target's GPUs are
assumed to have, and what it records is written down.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgequant.device.targets import find_target
from edgequant.graph.launch import Limits
from edgequant.progress import SILENT, Progress
from edgequant.stages.bundle_content import decode_dispatches, memory_of, write_down_all
from edgequant.stages.bundle_manifest import MANIFEST
from edgequant.stages.whole_folder import (
    check_folder,
    copy_file,
    link_file,
    whole_folder,
    write_file,
)


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
        pipelines: kernels with their constants, of the first manifest.
        recordings: steps of different sizes, of the first manifest.
        decode_dispatches: of its step that decodes one token in the smallest context.
        context: tokens at most.
        cache: type of the KV cache.
        memory_bytes: of all buffers, weights included.
        limits: that were assumed, one for each manifest.
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
    limits: tuple[Limits, ...]
    seconds: float


def bundle(
    model: Path,
    output: Path,
    *,
    target: str,
    limits: Sequence[Limits] | None = None,
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
        limits: to assume, which differ in `subgroup`; None for the target's.
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
    assumed = chosen.assumed if limits is None else tuple(limits)
    check_folder(output, MANIFEST, force=force, inputs=[model])
    progress.begin("record", 1, "models")
    made = write_down_all(model, chosen, assumed, context, cache)
    content, transcript = made.content, made.transcripts[0]
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
        kernels=sum(name.startswith("kernels/") for name in content),
        pipelines=len(transcript.pipelines),
        recordings=len(transcript.recordings),
        decode_dispatches=decode_dispatches(transcript),
        context=made.context,
        cache=cache,
        memory_bytes=max(map(memory_of, made.transcripts)),
        limits=assumed,
        seconds=time.monotonic() - started,
    )
