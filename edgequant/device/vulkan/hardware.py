"""The Vulkan devices of this machine and what each can do.

Devices are numbered with hardware before drivers that compute on the CPU. Nothing here creates
anything on a device.
"""

import sys
from collections.abc import Callable, Sequence
from ctypes import byref, c_uint32, c_void_p
from ctypes import c_char_p as text
from dataclasses import dataclass, field
from functools import cache
from mmap import PAGESIZE
from threading import Lock
from typing import TYPE_CHECKING, Any

from edgequant.device.vulkan import structs as vk
from edgequant.device.vulkan.api import Functions, Library, check, load

if TYPE_CHECKING:
    from edgequant.graph.launch import Limits

VERSION = (1 << 22) | (3 << 12)  # Vulkan 1.3, as drivers number it
KINDS = {2: "discrete GPU", 1: "integrated GPU", 3: "virtual GPU", 0: "other", 4: "CPU"}
REQUIRED = frozenset(
    (
        "bufferDeviceAddress",
        "timelineSemaphore",
        "shaderInt64",
        "shaderInt16",
        "shaderInt8",
        "shaderFloat16",
        "storageBuffer8BitAccess",
        "storageBuffer16BitAccess",
        "maintenance4",  # workgroup sizes by specialization
    )
)
MATRIX, HOST_MEMORY = "VK_KHR_cooperative_matrix", "VK_EXT_external_memory_host"
BUDGET = "VK_EXT_memory_budget"
EXTENSIONS = (
    MATRIX,
    HOST_MEMORY,
    BUDGET,
    "VK_KHR_portability_subset",  # must be taken where it is there: drivers on top of Metal
)
MATRICES = ((16, 16, 16), (16, 8, 16), (16, 8, 8), (8, 8, 8))  # preferred (M, N, K), best first
_FLOAT16, _FLOAT32, _SUBGROUP_SCOPE = 0, 1, 3
_COMPUTE = 0x20
_PORTABILITY = "VK_KHR_portability_enumeration"


@dataclass(frozen=True)
class Hardware:
    """A device and what it can do.

    Attributes:
        functions: of the instance it belongs to.
        handle: the physical device.
        name: of the device.
        kind: one of `KINDS`.
        uuid: of the device, hexadecimal; the same in every process.
        driver: name and version, as the driver words it.
        driver_key: changes with the driver: its UUID and version.
        version: of Vulkan, such as (1, 3).
        limits: for the choice of kernels.
        push_bytes: of push constants.
        grid: workgroups at most, in each direction.
        timestamp_ns: of a tick; 0 where the queue has no timestamps.
        family: of the queue that computes; None without.
        features: names of those present, of those in `structs.FEATURES`.
        extensions: those present, of `EXTENSIONS`.
        full_subgroups: subgroups can be asked to have `limits.subgroup` lanes, all there.
        import_alignment: of host memory that can be imported; 0 where none can.
        memory_bytes: of the largest heap on the device.
    """

    functions: Functions = field(repr=False)
    handle: int = field(repr=False)
    name: str
    kind: str
    uuid: str
    driver: str
    driver_key: str
    version: tuple[int, int]
    limits: "Limits"
    push_bytes: int
    grid: tuple[int, int, int]
    timestamp_ns: float
    family: int | None
    features: frozenset[str]
    extensions: tuple[str, ...]
    full_subgroups: bool
    import_alignment: int
    memory_bytes: int

    @property
    def lacking(self) -> tuple[str, ...]:
        """What keeps us from using it; empty if it can be used."""
        version = () if self.version >= (1, 3) else ("Vulkan 1.3",)
        queue = () if self.family is not None else ("a queue that computes",)
        return (*version, *queue, *sorted(REQUIRED - self.features))

    @property
    def computes_on_cpu(self) -> bool:
        """Whether the driver is software."""
        return self.kind == KINDS[4]

    @property
    def adopts_in_place(self) -> bool:
        """Whether mapped files are read where they are: one memory, importable page by page."""
        return self.kind in (KINDS[1], KINDS[4]) and 0 < self.import_alignment <= PAGESIZE


_STARTING = Lock()


def found() -> tuple[Hardware, ...] | None:
    """Return this machine's devices, hardware first; None where no Vulkan library is installed.

    Drivers start once, whoever asks first.
    """
    with _STARTING:
        return _start()


@cache
def _start() -> tuple[Hardware, ...] | None:
    library = load()
    if library is None:
        return None
    instance = create_instance(library)
    return enumerate_devices(library.functions(instance), instance) if instance else ()


def create_instance(
    library: Library, layers: Sequence[str] = (), extensions: Sequence[str] = ()
) -> int:
    """Return an instance, or 0 where no driver is installed."""
    f = library.functions(0)
    # Asking for the list makes the loader load every driver, twice; only Apple's need the answer.
    portable = sys.platform == "darwin" and _PORTABILITY in _instance_extensions(f)
    wanted = (*extensions, *([_PORTABILITY] if portable else ()))
    info = vk.InstanceCreateInfo(
        flags=1 if portable else 0,
        application=vk.ApplicationInfo(name=b"edgequant", api=VERSION),
        layer_count=len(layers),
        layers=texts(layers),
        extension_count=len(wanted),
        extensions=texts(wanted),
    )
    instance = c_void_p()
    result = f.vkCreateInstance(byref(info), None, byref(instance))
    if result == -9:  # no driver
        return 0
    check(result, "starting Vulkan")
    return instance.value or 0


def _instance_extensions(f: Functions) -> set[str]:
    there = _all(vk.ExtensionProperties, f.vkEnumerateInstanceExtensionProperties, None)
    return {extension.name.decode() for extension in there}


def enumerate_devices(f: Functions, instance: int) -> tuple[Hardware, ...]:
    """Return the devices of an instance, hardware first."""
    handles = _all(c_void_p, f.vkEnumeratePhysicalDevices, instance)
    order = list(KINDS.values())
    return tuple(sorted((_describe(f, h) for h in handles), key=lambda d: order.index(d.kind)))


def texts(names: Sequence[str]) -> Any:
    """Return an array of C strings."""
    return (text * len(names))(*(name.encode() for name in names))


def _all(kind: Any, function: Callable[..., int | None], *first: object) -> list[Any]:
    """Call a function of Vulkan's count-then-fill form."""
    count = c_uint32()
    check(function(*first, byref(count), None) or 0, "listing devices")
    items = (kind * count.value)(*([kind()] * count.value))
    check(function(*first, byref(count), items) or 0, "listing devices")
    return list(items)[: count.value]


def _describe(f: Functions, handle: int) -> Hardware:
    """Ask a device what it can do."""
    from edgequant.graph.launch import Limits  # it brings NumPy, for which no driver need wait

    there = _all(vk.ExtensionProperties, f.vkEnumerateDeviceExtensionProperties, handle, None)
    names = {e.name.decode() for e in there}
    base, host = vk.DeviceProperties(), vk.ExternalMemoryHostProperties()
    p11, p12, p13 = vk.Properties11(), vk.Properties12(), vk.Properties13()
    vk.chain(base, p11, p12, p13, *((host,) if HOST_MEMORY in names else ()))
    f.vkGetPhysicalDeviceProperties2(handle, byref(base))
    features = _features(f, handle, matrices=MATRIX in names)
    memory = vk.MemoryProperties()
    f.vkGetPhysicalDeviceMemoryProperties2(handle, byref(memory))
    queues = _all(vk.QueueFamilyProperties, f.vkGetPhysicalDeviceQueueFamilyProperties, handle)
    family, bits = _queue(queues)
    lanes, full = _subgroup(p11, p13, features)
    driver = (
        f"{p12.driver_name.decode(errors='replace')}, {p12.driver_info.decode(errors='replace')}"
    )
    limits = base.limits
    return Hardware(
        functions=f,
        handle=handle,
        name=base.name.decode(errors="replace"),
        kind=KINDS.get(base.kind, KINDS[0]),
        uuid=bytes(p11.device_uuid).hex(),
        driver=driver,
        driver_key=f"{bytes(p11.driver_uuid).hex()}-{base.driver_version:08x}",
        version=(base.api >> 22 & 0x7F, base.api >> 12 & 0x3FF),
        limits=Limits(
            subgroup=lanes,
            workgroup=min(limits.workgroup, p13.workgroup_subgroups * lanes)
            if full
            else limits.workgroup,
            shared_bytes=limits.shared_bytes,
            max_alloc_bytes=min(p13.max_buffer_bytes, p11.max_alloc_bytes),
            cooperative_matrix=_matrix(f, handle) if "cooperativeMatrix" in features else None,
            integer_dot=bool(p13.dot_packed_signed) and "shaderIntegerDotProduct" in features,
        ),
        push_bytes=limits.push_bytes,
        grid=tuple(limits.grid),
        timestamp_ns=limits.timestamp_ns if bits else 0.0,
        family=family,
        features=features,
        extensions=tuple(name for name in EXTENSIONS if name in names),
        full_subgroups=full,
        import_alignment=host.alignment,
        memory_bytes=max(h.nbytes for h in memory.heaps[: memory.heap_count] if h.flags & 1),
    )


def feature_chain(*, matrices: bool) -> list[vk.Info]:
    """Return the feature structures a device knows, chained."""
    kinds = (vk.Features10, vk.Features11, vk.Features12, vk.Features13)
    infos = [kind() for kind in (*kinds, *((vk.FeaturesCooperativeMatrix,) if matrices else ()))]
    vk.chain(*infos)
    return infos


def _features(f: Functions, handle: int, *, matrices: bool) -> frozenset[str]:
    infos = feature_chain(matrices=matrices)
    f.vkGetPhysicalDeviceFeatures2(handle, byref(infos[0]))
    known = [
        (name, info.bits[bit]) for info in infos for name, bit in vk.FEATURES[type(info)].items()
    ]
    return frozenset(name for name, present in known if present)


def _queue(families: Sequence[Any]) -> tuple[int | None, int]:
    """Return the number of the family that computes, and the bits of its timestamps.

    One that cannot draw goes first: on an H200 a decode step takes 0.6 to 0.9% less there, and a
    desktop's drawing is not in the way. One without timestamps goes last.
    """
    able = [i for i, family in enumerate(families) if family.flags & 2]
    best = min(
        able,
        key=lambda i: (not families[i].timestamp_bits, families[i].flags & 1),
        default=None,
    )
    return best, 0 if best is None else families[best].timestamp_bits


def _subgroup(p11: Any, p13: Any, features: frozenset[str]) -> tuple[int, bool]:
    """Return the lanes of a subgroup, 32 where there is a choice, and whether to ask for them."""
    control = {"subgroupSizeControl", "computeFullSubgroups"} <= features
    if not (control and p13.subgroup_stages & _COMPUTE):
        return p11.subgroup, False
    return (32 if p13.subgroup_min <= 32 <= p13.subgroup_max else p11.subgroup), True


def _matrix(f: Functions, handle: int) -> tuple[int, int, int] | None:
    """Choose the shape of float16 matrices with float32 sums."""
    wanted = (_FLOAT16, _FLOAT16, _FLOAT32, _FLOAT32, 0, _SUBGROUP_SCOPE)
    listed = _all(
        vk.CooperativeMatrixProperties, f.vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR, handle
    )
    shapes = {
        (p.m, p.n, p.k) for p in listed if (p.a, p.b, p.c, p.r, p.saturating, p.scope) == wanted
    }
    return next((shape for shape in MATRICES if shape in shapes), None)
