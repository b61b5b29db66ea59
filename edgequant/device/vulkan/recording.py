"""Recordings: dispatches in a command buffer, with barriers where one depends on another."""

from collections.abc import Sequence
from ctypes import c_uint64
from itertools import pairwise

from edgequant.device.barriers import barriers
from edgequant.device.vulkan import structs as vk
from edgequant.device.vulkan.api import check
from edgequant.device.vulkan.logical import COMPUTE, Commands, Logical
from edgequant.device.vulkan.pipelines import Pipelines
from edgequant.errors import DeviceError
from edgequant.graph.launch import Dispatch

_COMPUTE_POINT, _COMPUTE_STAGE = 1, 0x20
_TIMESTAMP = 2  # kind of query
_RESULTS_64_WAIT = 3


class Encoded:
    """Dispatches that can be submitted many times."""

    def __init__(
        self, logical: Logical, pipelines: Pipelines, dispatches: Sequence[Dispatch], *, timed: bool
    ) -> None:
        for dispatch in dispatches:
            _validate(dispatch, logical)
        pipelines.compile((d.kernel, d.constants) for d in dispatches)
        self._logical = logical
        self._stamps = len(dispatches) + 1 if timed else 0
        self._queries = self._make_queries() if timed else 0
        self.commands = Commands(logical)
        self._encode(pipelines, dispatches)

    @property
    def timed(self) -> bool:
        """Whether `seconds` knows something."""
        return self._stamps > 0

    def seconds(self) -> list[float]:
        """Return the seconds of each dispatch of the last run, which must be done."""
        stamps = (c_uint64 * self._stamps)()
        logical = self._logical
        check(
            logical.f.vkGetQueryPoolResults(
                logical.device,
                self._queries,
                0,
                self._stamps,
                8 * self._stamps,
                stamps,
                8,
                _RESULTS_64_WAIT,
            ),
            "reading timestamps",
        )
        tick = logical.hardware.timestamp_ns * 1e-9
        return [(b - a) * tick for a, b in pairwise(stamps)]

    def free(self) -> None:
        """Give it back; it must not be in flight."""
        self.commands.free()
        if self._queries:
            self._logical.destroy("QueryPool", self._queries)

    def _make_queries(self) -> int:
        if not self._logical.hardware.timestamp_ns:
            raise DeviceError(
                f"vulkan: {self._logical.hardware.name} has no timestamps.",
                hint="leave out --profile on this device.",
            )
        return self._logical.create(
            "QueryPool", vk.QueryPoolCreateInfo(kind=_TIMESTAMP, count=self._stamps)
        )

    def _encode(self, pipelines: Pipelines, dispatches: Sequence[Dispatch]) -> None:
        f, commands = self._logical.f, self.commands
        handle, layout, bound = commands.handle, pipelines.layout, None
        commands.begin(again=True)
        if self.timed:
            f.vkCmdResetQueryPool(handle, self._queries, 0, self._stamps)
            f.vkCmdWriteTimestamp(handle, COMPUTE, self._queries, 0)
        for number, (dispatch, barrier) in enumerate(
            zip(dispatches, barriers(dispatches), strict=True)
        ):
            if barrier:
                commands.barrier()
            pipeline = pipelines[dispatch.kernel, dispatch.constants]
            if pipeline != bound:
                f.vkCmdBindPipeline(handle, _COMPUTE_POINT, pipeline)
                bound = pipeline
            arguments = dispatch.arguments
            f.vkCmdPushConstants(handle, layout, _COMPUTE_STAGE, 0, len(arguments), arguments)
            f.vkCmdDispatch(handle, *dispatch.workgroups)
            if self.timed:
                f.vkCmdWriteTimestamp(handle, COMPUTE, self._queries, number + 1)
        commands.end()


def _validate(dispatch: Dispatch, logical: Logical) -> None:
    """Refuse what the device cannot launch."""
    hardware = logical.hardware
    if len(dispatch.arguments) > hardware.push_bytes:
        raise DeviceError(
            f"vulkan: {dispatch.kernel} receives {len(dispatch.arguments)} bytes; "
            f"{hardware.name} passes {hardware.push_bytes} at most.",
            hint="use --device cpu.",
        )
    if any(not 0 < n <= most for n, most in zip(dispatch.workgroups, hardware.grid, strict=True)):
        raise ValueError(f"{dispatch.kernel}: {dispatch.workgroups} workgroups of {hardware.grid}")
