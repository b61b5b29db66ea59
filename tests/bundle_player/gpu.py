"""As much of Vulkan 1.3 as a bundle needs, by ctypes: buffers with addresses, kernels, recordings.

Of a bundle it knows `needs`, `limits` and an item of `pipelines`. Memory is what the host sees, for
simplicity's sake; an app would copy weights to the GPU's own, or import the file.
"""

import ctypes
from ctypes import byref, c_char_p, c_float, c_int32, c_size_t, c_uint32, c_uint64, c_void_p

U, Q, P = c_uint32, c_uint64, c_void_p
# Of VkPhysicalDeviceFeatures and those of 1.1, 1.2 and 1.3: their types and sizes in words, and the
# places of the bits that bundles name.
FEATURES = (
    (1000059000, 55, {"shaderInt64": 40, "shaderInt16": 41}),
    (49, 12, {"storageBuffer16BitAccess": 0}),
    (51, 47, {
        "storageBuffer8BitAccess": 2, "shaderFloat16": 7, "shaderInt8": 8,
        "bufferDeviceAddress": 38, "vulkanMemoryModel": 41, "vulkanMemoryModelDeviceScope": 42,
    }),
    (53, 15, {
        "subgroupSizeControl": 7, "computeFullSubgroups": 8, "shaderIntegerDotProduct": 13,
        "maintenance4": 14,
    }),
)  # fmt: skip
MATRICES = (1000506000, 2, {"cooperativeMatrix": 0})  # needs its extension
OPERATIONS = {"basic": 1, "arithmetic": 4, "shuffle": 16}  # bits of subgroupSupportedOperations
COMPUTE, HOST = 0x800, 0x4000  # stages
READ, WRITE, HOST_READ = 0x20, 0x40, 0x2000  # accesses


def record(kind, /, **fields):
    """Return a structure: its type, no next one, and fields as (ctype, value)."""
    layout = [("type", U), ("next", P), *((name, ctype) for name, (ctype, _) in fields.items())]
    made = type("Record", (ctypes.Structure,), {"_fields_": layout})()
    made.type = kind
    made.kept = [value for _, value in fields.values()]
    for name, (ctype, value) in fields.items():
        pointed = ctype is P and isinstance(value, (ctypes.Structure, ctypes.Array))
        setattr(made, name, ctypes.addressof(value) if pointed else value)
    return made


def chain(first, *others):
    """Let each structure point to the next."""
    first.chained = others
    for one, following in zip((first, *others), others, strict=False):
        one.next = ctypes.addressof(following)
    return first


def check(result):
    """Stop at Vulkan's errors."""
    if result:
        raise SystemExit(f"Vulkan says {result}")


class Gpu:
    """A device with one queue."""

    def __init__(self, uuid):
        """Find a device by its UUID; "" is the first."""
        self.vk = ctypes.CDLL("libvulkan.so.1")
        self._physical, self._lanes, self._operations = self._find(uuid)
        self._device, self._queue = P(), P()

    def suits(self, subgroup):
        """Tell whether kernels can have subgroups of so many lanes."""
        least, most = self._lanes
        return least <= subgroup <= most

    def open(self, needs, limits):
        """Prepare to run kernels that need this, and assume these limits."""
        assert all(self._operations & OPERATIONS[name] for name in needs["subgroup_operations"])
        self._subgroup = limits["subgroup"]
        self._open(needs)
        self.vk.vkGetDeviceQueue(self._device, 0, 0, byref(self._queue))
        self._pool = self._make("CommandPool", record(39, flags=(U, 0), family=(U, 0)))
        self._fence = self._make("Fence", record(8, flags=(U, 0)))
        arguments = (U * 3)(0x20, 0, limits["argument_bytes"])
        self._layout = self._make(
            "PipelineLayout",
            record(
                30, flags=(U, 0), sets=(U, 0), set=(P, None), ranges=(U, 1), range=(P, arguments)
            ),
        )  # fmt: skip

    def buffer(self, nbytes):
        """Return a new buffer: its address for kernels, and its bytes."""
        whole = -(-nbytes // 16) * 16
        handle = self._make(
            "Buffer",
            record(12, flags=(U, 0), size=(Q, whole), usage=(U, 0x20 | 0x20000), sharing=(U, 0),
                   families=(U, 0), family=(P, None)),
        )  # fmt: skip
        needs = (Q * 3)()  # size, alignment, types
        self.vk.vkGetBufferMemoryRequirements(self._device, Q(handle), byref(needs))
        kind = next(i for i in self._visible if needs[2] >> i & 1)
        info = record(5, size=(Q, needs[0]), kind=(U, kind))
        memory = Q()
        chain(info, record(1000060000, flags=(U, 2), mask=(U, 0)))
        check(self.vk.vkAllocateMemory(self._device, byref(info), None, byref(memory)))
        check(self.vk.vkBindBufferMemory(self._device, Q(handle), memory, Q(0)))
        place = P()
        check(self.vk.vkMapMemory(self._device, memory, Q(0), Q(2**64 - 1), 0, byref(place)))
        ctypes.memset(place, 0, whole)
        address = self.vk.vkGetBufferDeviceAddress
        address.restype = Q
        content = memoryview((ctypes.c_ubyte * whole).from_address(place.value)).cast("B")
        return address(self._device, byref(record(1000244001, buffer=(Q, handle)))), content

    def pipeline(self, code, item):
        """Return a kernel, specialized as an item of a manifest's pipelines says."""
        constants = item["constants"]
        words = (ctypes.c_char * len(code)).from_buffer_copy(code)
        module = self._make(
            "ShaderModule", record(16, flags=(U, 0), size=(c_size_t, len(code)), code=(P, words))
        )
        numbers = (U * len(constants))(*constants)
        entries = (Q * (2 * len(constants)))()  # number and offset in one word, then the size
        for number in range(len(constants)):
            entries[2 * number : 2 * number + 2] = number | 4 * number << 32, 4
        special = (Q * 4)(
            len(constants), ctypes.addressof(entries), 4 * len(constants), ctypes.addressof(numbers)
        )
        name = ctypes.create_string_buffer(item["entry"].encode())
        stage = record(
            18, flags=(U, 2 if item["subgroups"] else 0), stage=(U, 0x20), module=(Q, module),
            name=(P, name), special=(P, special),
        )  # fmt: skip
        if item["subgroups"]:
            chain(stage, record(1000225001, lanes=(U, self._subgroup)))
        info = record(
            29, flags=(U, 0), stage=(type(stage), stage), layout=(Q, self._layout), base=(Q, 0),
            index=(c_int32, -1),
        )  # fmt: skip
        made, create = Q(), self.vk.vkCreateComputePipelines
        check(create(self._device, Q(0), 1, byref(info), None, byref(made)))
        return made

    def recording(self, dispatches, barriers):
        """Return commands: dispatches are (pipeline, workgroups, bytes of arguments)."""
        commands = P()
        info = record(40, pool=(Q, self._pool), level=(U, 0), count=(U, 1))
        check(self.vk.vkAllocateCommandBuffers(self._device, byref(info), byref(commands)))
        begin = record(42, flags=(U, 0), inherited=(P, None))
        check(self.vk.vkBeginCommandBuffer(commands, byref(begin)))
        for number, (pipeline, workgroups, arguments) in enumerate(dispatches):
            if number in barriers:
                self._barrier(commands, COMPUTE, READ | WRITE)
            self.vk.vkCmdBindPipeline(commands, 1, pipeline)
            self.vk.vkCmdPushConstants(
                commands, Q(self._layout), 0x20, 0, len(arguments), c_char_p(arguments)
            )
            self.vk.vkCmdDispatch(commands, *workgroups)
        self._barrier(commands, COMPUTE | HOST, READ | WRITE | HOST_READ)
        check(self.vk.vkEndCommandBuffer(commands))
        return commands

    def run(self, commands):
        """Submit commands, and wait until they are done."""
        one = (P * 1)(commands.value)
        info = record(
            4, waits=(U, 0), wait=(P, None), stages=(P, None), count=(U, 1), commands=(P, one),
            signals=(U, 0), signal=(P, None),
        )  # fmt: skip
        fence = (Q * 1)(self._fence)
        check(self.vk.vkQueueSubmit(self._queue, 1, byref(info), Q(self._fence)))
        check(self.vk.vkWaitForFences(self._device, 1, fence, 1, Q(2**64 - 1)))
        check(self.vk.vkResetFences(self._device, 1, fence))

    def _barrier(self, commands, stages, accesses):
        memory = record(46, source=(U, WRITE), target=(U, accesses))
        self.vk.vkCmdPipelineBarrier(
            commands, COMPUTE, stages, 0, 1, byref(memory), 0, None, 0, None
        )

    def _make(self, kind, info):
        made = Q()
        create = getattr(self.vk, f"vkCreate{kind}")
        check(create(self._device, byref(info), None, byref(made)))
        return made.value

    def _find(self, uuid):
        """Return a device, the least and most lanes of its subgroups, and their operations."""
        name = ctypes.create_string_buffer(b"bundle_player")
        application = record(
            0, name=(P, name), version=(U, 0), engine=(P, None), made=(U, 0), api=(U, 0x403000)
        )
        info = record(
            1, flags=(U, 0), application=(P, application), layers=(U, 0), layer=(P, None),
            extensions=(U, 0), extension=(P, None),
        )  # fmt: skip
        instance, count = P(), U()
        check(self.vk.vkCreateInstance(byref(info), None, byref(instance)))
        check(self.vk.vkEnumeratePhysicalDevices(instance, byref(count), None))
        devices = (P * count.value)()
        check(self.vk.vkEnumeratePhysicalDevices(instance, byref(count), devices))
        for physical in map(P, devices):
            base = record(1000059001, words=(U * 206, (U * 206)()))
            p11 = record(50, words=(U * 24, (U * 24)()))  # of 1.1: UUID, …, operations of subgroups
            p13 = record(54, words=(U * 52, (U * 52)()))  # of 1.3: lanes at least, at most, …
            self.vk.vkGetPhysicalDeviceProperties2(physical, byref(chain(base, p11, p13)))
            if uuid in ("", bytes(p11.words)[:16].hex()):
                return physical, tuple(p13.words[:2]), p11.words[14]
        raise SystemExit(f"there is no device {uuid}")

    def _open(self, needs):
        """Open the device with all that is needed."""
        memory = record(1000059006, words=(U * 130, (U * 130)()))
        self.vk.vkGetPhysicalDeviceMemoryProperties2(self._physical, byref(memory))
        count, flags = memory.words[0], memory.words[1:65:2]  # of the types of memory
        self._visible = [i for i in range(count) if flags[i] & 6 == 6 and flags[i] < 16]
        texts = [ctypes.create_string_buffer(text.encode()) for text in needs["extensions"]]
        names = (P * len(texts))(*map(ctypes.addressof, texts))
        first = (c_float * 1)(1)
        queue = record(2, flags=(U, 0), family=(U, 0), count=(U, 1), priority=(P, first))
        info = record(
            3, flags=(U, 0), queues=(U, 1), queue=(P, queue), layers=(U, 0), layer=(P, None),
            extensions=(U, len(texts)), extension=(P, names), features=(P, None),
        )  # fmt: skip
        chain(info, *_features(needs["features"]))
        check(self.vk.vkCreateDevice(self._physical, byref(info), None, byref(self._device)))


def _features(wanted):
    """Return the chain of features with what is wanted, and no more."""
    known = [*FEATURES, *([MATRICES] if "cooperativeMatrix" in wanted else [])]
    assert set(wanted) <= {name for _, _, bits in known for name in bits}, wanted
    return [
        record(kind, bits=(U * size, (U * size)(*(
            any(bits.get(name) == place for name in wanted) for place in range(size)
        ))))
        for kind, size, bits in known
    ]  # fmt: skip
