"""Compiled kernels, and the cache of them on disk."""

import hashlib
import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from ctypes import byref, c_size_t, c_uint32, c_uint64, create_string_buffer
from pathlib import Path

from edgequant.device.compiled import Compiled, Key
from edgequant.device.kernel_files import minds_subgroups
from edgequant.device.vulkan import structs as vk
from edgequant.device.vulkan.api import RESULTS, check
from edgequant.device.vulkan.logical import Logical
from edgequant.errors import DeviceError

_COMPUTE = 0x20  # shader stage
_FULL_SUBGROUPS = 2
_DIGEST = 32


class Pipelines:
    """The kernels of one device, compiled when first asked for."""

    def __init__(self, logical: Logical, shaders: Path, cache: Path) -> None:
        self._logical = logical
        self._shaders = shaders
        hardware = logical.hardware
        spans = vk.PushConstantRange(stages=_COMPUTE, nbytes=hardware.push_bytes)
        layout = vk.PipelineLayoutCreateInfo(range_count=1, ranges=spans)
        self.layout = logical.create("PipelineLayout", layout)
        self._file = cache / f"{hardware.uuid}-{hardware.driver_key}.pipelines"
        self._saved = _load(self._file)
        info = vk.PipelineCacheCreateInfo(nbytes=len(self._saved), content=self._saved)
        self._cache = logical.create("PipelineCache", info)
        self._compiled = Compiled(self._compile)

    def prepare(self, wanted: Iterable[Key]) -> None:
        """Start to compile kernels."""
        self._compiled.prepare(wanted)

    def compile(self, wanted: Iterable[Key]) -> None:
        """Compile kernels that are not yet."""
        self._compiled.compile(wanted)

    def __getitem__(self, key: Key) -> int:
        """Return the pipeline of a kernel that was compiled."""
        return self._compiled[key]

    def close(self) -> None:
        """Save the cache and destroy the pipelines."""
        handles = self._compiled.take_all()
        with suppress(OSError, DeviceError):  # what cannot be kept is made again
            self._save()
        for handle in handles:
            self._logical.destroy("Pipeline", handle)
        self._logical.destroy("PipelineCache", self._cache)
        self._logical.destroy("PipelineLayout", self.layout)

    def _compile(self, key: Key) -> int:
        kernel, constants = key
        hardware = self._logical.hardware
        try:
            code = (self._shaders / f"{kernel}.spv").read_bytes()
        except FileNotFoundError:
            raise DeviceError(
                f"vulkan: there is no kernel {kernel}.",
                hint="install edgequant again; in a checkout, run `make shaders`.",
            ) from None
        module = self._logical.create(
            "ShaderModule", vk.ShaderModuleCreateInfo(nbytes=len(code), code=code)
        )
        count = len(constants)
        entries = (vk.SpecializationMapEntry * count)(
            *(vk.SpecializationMapEntry(number=i, offset=4 * i, nbytes=4) for i in range(count))
        )
        values = (c_uint32 * count)(*constants)
        special = vk.SpecializationInfo(
            count=count, entries=entries, nbytes=4 * count, values=values
        )
        lanes = vk.RequiredSubgroupSize(lanes=hardware.limits.subgroup)
        stage = vk.ShaderStageCreateInfo(
            stage=_COMPUTE, module=module, name=b"main", specialization=special
        )
        # Some kernels have workgroups that no subgroup divides, and do not mind.
        if hardware.full_subgroups and minds_subgroups(code):
            stage.flags = _FULL_SUBGROUPS
            vk.chain(stage, lanes)
        info = vk.ComputePipelineCreateInfo(stage=stage, layout=self.layout, base_index=-1)
        pipeline = c_uint64()
        f, device = self._logical.f, self._logical.device
        result = f.vkCreateComputePipelines(
            device, self._cache, 1, byref(info), None, byref(pipeline)
        )
        self._logical.destroy("ShaderModule", module)
        if result:
            raise DeviceError(
                f"vulkan: kernel {kernel} {list(constants)} does not compile on {hardware.name} "
                f"({hardware.driver}): {RESULTS.get(result, 'unknown error')} ({result}).",
                hint="update the graphics driver, or use --device cpu.",
            )
        return pipeline.value

    def _save(self) -> None:
        """Write the driver's cache if it grew, beside a digest, all or nothing."""
        f, device = self._logical.f, self._logical.device
        nbytes = c_size_t()
        check(f.vkGetPipelineCacheData(device, self._cache, byref(nbytes), None), "saving kernels")
        if nbytes.value <= len(self._saved):
            return
        content = create_string_buffer(nbytes.value)
        check(
            f.vkGetPipelineCacheData(device, self._cache, byref(nbytes), content), "saving kernels"
        )
        blob = content.raw[: nbytes.value]
        self._file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=self._file.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(hashlib.sha256(blob).digest() + blob)
            Path(name).replace(self._file)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise


def _load(path: Path) -> bytes:
    """Return what `_save` wrote; nothing if it is absent or damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return b""
    blob = content[_DIGEST:]
    return blob if hashlib.sha256(blob).digest() == content[:_DIGEST] else b""
