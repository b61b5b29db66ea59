"""A logical device with one queue: command buffers, submissions in order, waiting.

One timeline semaphore counts submissions: a ticket is the count at which it is done.
"""

from ctypes import byref, c_float, c_uint64, c_void_p
from typing import Any

from edgequant.device.vulkan import structs as vk
from edgequant.device.vulkan.api import TIMEOUT, check
from edgequant.device.vulkan.hardware import MATRIX, Hardware, feature_chain, texts

_SLICE = 100_000_000  # nanoseconds of one wait, so that Ctrl-C is met between two
COMPUTE, TRANSFER, HOST = 0x800, 0x1000, 0x4000  # pipeline stages
_READ, _WRITE = 0x20, 0x40  # accesses by kernels
_COPY_READ, _COPY_WRITE, _HOST_READ = 0x800, 0x1000, 0x2000


class Logical:
    """What everything on a device needs: its functions, its handle, its queue."""

    def __init__(self, hardware: Hardware) -> None:
        self.hardware = hardware
        self.device = _create(hardware)
        self.f = f = hardware.functions.of_device(self.device)
        queue = c_void_p()
        f.vkGetDeviceQueue(self.device, hardware.family, 0, byref(queue))
        self.queue = queue.value
        self.pool = self.create(
            "CommandPool", vk.CommandPoolCreateInfo(flags=2, family=hardware.family)
        )
        kind = vk.SemaphoreType(kind=1)
        info = vk.SemaphoreCreateInfo()
        vk.chain(info, kind)
        self._semaphore = (c_uint64 * 1)(self.create("Semaphore", info))
        self._signal, self._awaited = (c_uint64 * 1)(0), (c_uint64 * 1)(0)
        self._timeline = vk.TimelineSubmitInfo(signal_count=1, signals=self._signal)
        self._wait = byref(
            vk.SemaphoreWaitInfo(count=1, semaphores=self._semaphore, values=self._awaited)
        )
        self._submit, self._wait_semaphores = f.vkQueueSubmit, f.vkWaitSemaphores
        self.finished = 0  # the last ticket known to be done

    def create(self, kind: str, info: vk.Info) -> int:
        """Create an object by vkCreate`kind`, and return its handle."""
        handle = c_uint64()
        check(
            getattr(self.f, f"vkCreate{kind}")(self.device, byref(info), None, byref(handle)),
            f"making a {kind}",
        )
        return handle.value

    def destroy(self, kind: str, handle: int) -> None:
        """Destroy an object by vkDestroy`kind`."""
        getattr(self.f, f"vkDestroy{kind}")(self.device, handle, None)

    def submit(self, commands: "Commands") -> int:
        """Start commands and return their ticket."""
        self._signal[0] += 1
        result = self._submit(self.queue, 1, commands.info, 0)
        if result:
            self._signal[0] -= 1
            check(result, "submitting work")
        return self._signal[0]

    def wait(self, ticket: int) -> None:
        """Return when a submission, and all before it, are done."""
        if ticket <= self.finished:
            return
        self._awaited[0] = ticket
        while (result := self._wait_semaphores(self.device, self._wait, _SLICE)) == TIMEOUT:
            pass
        check(result, "waiting for it")
        self.finished = ticket

    def wait_all(self) -> None:
        """Return when everything submitted is done."""
        self.wait(self._signal[0])

    def idle(self) -> None:
        """Return when the device does nothing; a lost one does nothing."""
        self.f.vkDeviceWaitIdle(self.device)

    def close(self) -> None:
        """Destroy the device; what was made on it must be gone."""
        self.destroy("Semaphore", self._semaphore[0])
        self.destroy("CommandPool", self.pool)
        self.f.vkDestroyDevice(self.device, None)


class Commands:
    """A command buffer; `info` is what submits it."""

    def __init__(self, logical: Logical) -> None:
        self._logical = logical
        self._buffer = (c_void_p * 1)()
        info = vk.CommandBufferAllocateInfo(pool=logical.pool, count=1)
        check(
            logical.f.vkAllocateCommandBuffers(logical.device, byref(info), self._buffer),
            "making a command buffer",
        )
        self.handle = self._buffer[0]
        self._submit = vk.SubmitInfo(
            command_count=1, commands=self._buffer, signal_count=1, signals=logical._semaphore
        )
        vk.chain(self._submit, logical._timeline)
        self.info = byref(self._submit)

    def begin(self, *, again: bool) -> None:
        """Start recording anew; `again` if it may be in flight more than once."""
        info = vk.CommandBufferBeginInfo(flags=4 if again else 1)
        check(self._logical.f.vkBeginCommandBuffer(self.handle, byref(info)), "recording")

    def barrier(self) -> None:
        """Let dispatches that follow see what those before have written."""
        self._barrier(COMPUTE, _WRITE, COMPUTE, _READ | _WRITE)

    def end(self) -> None:
        """Finish recording. Later submissions and the host see what it writes."""
        self._barrier(
            COMPUTE | TRANSFER,
            _WRITE | _COPY_WRITE,
            COMPUTE | TRANSFER | HOST,
            _READ | _WRITE | _COPY_READ | _COPY_WRITE | _HOST_READ,
        )
        check(self._logical.f.vkEndCommandBuffer(self.handle), "recording")

    def _barrier(self, before: int, written: int, after: int, touched: int) -> None:
        info = vk.MemoryBarrier(source=written, target=touched)
        self._logical.f.vkCmdPipelineBarrier(
            self.handle, before, after, 0, 1, byref(info), 0, None, 0, None
        )

    def free(self) -> None:
        """Give the command buffer back; it must not be in flight."""
        self._logical.f.vkFreeCommandBuffers(
            self._logical.device, self._logical.pool, 1, self._buffer
        )


def _create(hardware: Hardware) -> int:
    """Create the device with the features we know and it has, and no others."""
    infos = feature_chain(matrices=MATRIX in hardware.extensions)
    for info in infos:
        for name, bit in vk.FEATURES[type(info)].items():
            info.bits[bit] = name in hardware.features
    queue = vk.DeviceQueueCreateInfo(family=hardware.family, count=1, priorities=(c_float * 1)(1.0))
    create: Any = vk.DeviceCreateInfo(
        queue_count=1,
        queues=queue,
        extension_count=len(hardware.extensions),
        extensions=texts(hardware.extensions),
    )
    vk.chain(create, infos[0])
    device = c_void_p()
    result = hardware.functions.vkCreateDevice(hardware.handle, byref(create), None, byref(device))
    check(result, f"opening {hardware.name}")
    return device.value or 0
