"""Recordings: Metal's command buffers run once, so the calls that fill one are kept, ready to make.

A recording has one concurrent encoder, with barriers where one dispatch depends on another, and
tells it once which buffers kernels reach by address. A timed one has a command buffer for each
dispatch: Apple's GPUs cannot read a clock between two dispatches of an encoder.
"""

from collections.abc import Mapping, Sequence
from ctypes import c_void_p
from typing import Any

from edgequant.device.barriers import barriers
from edgequant.device.metal import objc
from edgequant.device.metal.objc import Messages, Object, Size
from edgequant.device.metal.pipelines import Pipeline
from edgequant.device.protocol import Buffer
from edgequant.graph.launch import Dispatch

_Call = tuple[objc.Function, int, tuple[Any, ...]]  # a message, but for its receiver


class Recorded:
    """Dispatches that can be committed many times; `objects` are what they read and write."""

    def __init__(
        self,
        send: Messages,
        dispatches: Sequence[Dispatch],
        pipelines: Sequence[Pipeline],
        objects: Mapping[Buffer, Object],
        *,
        timed: bool,
    ) -> None:
        self._send = send
        written = {span.buffer for dispatch in dispatches for span in dispatch.writes}
        read, both = objc.RESOURCE_USAGE_READ, objc.RESOURCE_USAGE_READ | objc.RESOURCE_USAGE_WRITE
        self._used = [
            ((c_void_p * len(numbers))(*(objects[n] for n in numbers)), len(numbers), usage)
            for numbers, usage in ((written, both), (objects.keys() - written, read))
            if numbers
        ]
        self._passes: list[list[_Call]] = []
        bound = None
        needed = barriers(dispatches)
        for dispatch, pipeline, barrier in zip(dispatches, pipelines, needed, strict=True):
            if timed or not self._passes:
                self._passes.append([])
                bound = None
            elif barrier:
                self._call("memoryBarrierWithScope:", objc.BARRIER_SCOPE_BUFFERS)
            if pipeline is not bound:
                self._call("setComputePipelineState:", pipeline.state)
                bound = pipeline
            given = dispatch.arguments + bytes(-len(dispatch.arguments) % 8)  # as structs pad
            self._call("setBytes:length:atIndex:", given, len(given), 0)
            groups = Size(*dispatch.workgroups)
            self._call("dispatchThreadgroups:threadsPerThreadgroup:", groups, pipeline.threads)

    def commit(self, queue: Object) -> list[Object]:
        """Fill command buffers and commit them; the caller has a pool, and releases them."""
        return [self._commit(queue, calls) for calls in self._passes]

    def _commit(self, queue: Object, calls: Sequence[_Call]) -> Object:
        send, kind = self._send, objc.DISPATCH_TYPE_CONCURRENT
        commands: Object = send(send(queue, "commandBufferWithUnretainedReferences"), "retain")
        encoder = send(commands, "computeCommandEncoderWithDispatchType:", kind)
        for used in self._used:
            send(encoder, "useResources:count:usage:", *used)
        for function, handle, arguments in calls:
            function(encoder, handle, *arguments)
        send(encoder, "endEncoding")
        send(commands, "commit")
        return commands

    def _call(self, selector: str, *arguments: Any) -> None:
        self._passes[-1].append((*self._send.bind(selector), arguments))
