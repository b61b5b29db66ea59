"""What a program would do, written down: buffers, pipelines, dispatches, and recordings of them.

Made of a program that was loaded on a `NullGpu`, for whoever plays it without this package. Things
are numbered by their place in a list; equal dispatches of several recordings are one. It knows
buffers and kernels, and nothing of text or of the folder this ends up in.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

from edgequant.blocks import Weights
from edgequant.device.barriers import barriers
from edgequant.device.buckets import Bucket
from edgequant.device.kernel_files import KernelFile
from edgequant.device.null import NullGpu
from edgequant.device.protocol import Buffer, Place
from edgequant.device.recorder import Places, Recorded, Repertoire
from edgequant.errors import DeviceError
from edgequant.graph.launch import Dispatch, Kind
from edgequant.graph.plan import Placed

READABLE = 16  # a kernel may read to the next multiple after what it was given
Item = dict[str, object]
_PLACES = {Place.DEVICE: "device", Place.UPLOAD: "upload", Place.READBACK: "readback"}


@dataclass(frozen=True)
class Transcript:
    """A program's repertoire, as plain values.

    Attributes:
        buffers: what is to be there before the first step.
        pipelines: kernels with their constants.
        dispatches: pipelines with their arguments.
        recordings: dispatches in order.
        step: number of the buffer of the step record.
        tokens: number of the buffer of the tokens of a step.
        ring: number of the buffer in which drawn tokens appear.
        kernels: the files that pipelines are made of.
    """

    buffers: tuple[Item, ...]
    pipelines: tuple[Item, ...]
    dispatches: tuple[Item, ...]
    recordings: tuple[Item, ...]
    step: int
    tokens: int
    ring: int
    kernels: tuple[KernelFile, ...]


@dataclass
class _Numbered:
    """Distinct things, numbered as they come."""

    numbers: dict[Hashable, int] = field(default_factory=dict)
    items: list[Item] = field(default_factory=list)

    def number(self, key: Hashable, make: Callable[[], Item]) -> int:
        if key not in self.numbers:
            self.numbers[key] = len(self.items)
            self.items.append(make())
        return self.numbers[key]


def write_down(
    repertoire: Repertoire,
    gpu: NullGpu,
    weights: Weights,
    find: Callable[[str], KernelFile],
    files: Mapping[Path, str],
    tables: bytearray,
    tables_file: str,
) -> Transcript:
    """Write a repertoire down.

    Args:
        repertoire: of a program on `gpu`.
        gpu: where it was recorded.
        weights: of the program.
        find: the file of a kernel, by name.
        files: how the model's files are to be called.
        tables: gets the content of tables that it does not hold yet.
        tables_file: how a file with it is to be called.

    Raises:
        DeviceError: what `find` raises; or a kernel's workgroups are larger than is assumed.
    """
    writer = _Writer(gpu, find)
    recordings = [
        writer.recording(purpose, bucket, made)
        for purpose, steps in (("fill", repertoire.fills), ("draw", repertoire.draws))
        for bucket, made in steps.items()
    ]
    places = repertoire.places
    held = _held(repertoire, weights, files, tables, tables_file)
    return Transcript(
        buffers=tuple(writer.buffer(buffer, held[buffer], places) for buffer in writer.buffers),
        pipelines=tuple(writer.pipelines.items),
        dispatches=tuple(writer.dispatches.items),
        recordings=tuple(recordings),
        step=writer.buffers[places.step.buffer],
        tokens=writer.buffers[places.tokens.buffer],
        ring=writer.buffers[repertoire.ring.buffer],
        kernels=tuple(writer.kernels.values()),
    )


class _Writer:
    """Numbers what recordings use."""

    def __init__(self, gpu: NullGpu, find: Callable[[str], KernelFile]) -> None:
        self.buffers: dict[Buffer, int] = {}
        self.pipelines, self.dispatches = _Numbered(), _Numbered()
        self.kernels: dict[str, KernelFile] = {}
        self._gpu = gpu
        self._find = find
        self._ends: dict[Buffer, int] = {}  # of the bytes that are touched
        self._written: set[Buffer] = set()

    def recording(self, purpose: str, bucket: Bucket, made: Recorded) -> Item:
        """Describe a recording, and number all it uses."""
        numbers, logits = [], None
        for placed, dispatch in zip(made.launches, made.dispatches, strict=True):
            numbers.append(self._dispatch(placed, dispatch))
            if dispatch.label == "sample" and placed.launch.operands[0].kind is Kind.INPUT:
                logits = self._arguments(placed, dispatch)[0]
        stands = [at for at, needed in enumerate(barriers(made.dispatches)) if needed]
        item: Item = {
            "purpose": purpose,
            "tokens": bucket.tokens,
            "context": bucket.context,
            "dispatches": numbers,
            "barriers": stands,
        }
        return item if logits is None else item | {"logits": logits}

    def buffer(self, buffer: Buffer, held: Item, places: Places) -> Item:
        """Describe a buffer that was numbered; of the arena only what is used counts."""
        nbytes = len(self._gpu.live[buffer])
        if buffer == places.arena.buffer:
            nbytes = self._ends[buffer]
        return held | {
            "bytes": nbytes,
            "place": _PLACES[self._gpu.places[buffer]],
            "written": buffer in self._written,
        }

    def _dispatch(self, placed: Placed, dispatch: Dispatch) -> int:
        for span in (*dispatch.reads, *dispatch.writes):
            self.buffers.setdefault(span.buffer, len(self.buffers))
            end = span.offset + span.nbytes
            self._ends[span.buffer] = max(end, self._ends.get(span.buffer, 0))
        self._written.update(span.buffer for span in dispatch.writes)
        key = (dispatch.kernel, dispatch.constants, dispatch.workgroups, dispatch.arguments)
        return self.dispatches.number(
            (*key, dispatch.label),
            lambda: {
                "label": dispatch.label,
                "pipeline": self._pipeline(dispatch),
                "workgroups": dispatch.workgroups,
                "arguments": self._arguments(placed, dispatch),
                "scalars": _padded(dispatch.arguments)[8 * len(placed.launch.operands) :].hex(),
            },
        )

    def _arguments(self, placed: Placed, dispatch: Dispatch) -> list[tuple[int, int]]:
        """Return the buffers and offsets of a dispatch's addresses."""
        found = []
        for number in range(len(placed.launch.operands)):
            address = int.from_bytes(dispatch.arguments[8 * number :][:8], "little")
            buffer, offset = self._gpu.locate(address)
            found.append((self.buffers[buffer], offset))
        return found

    def _pipeline(self, dispatch: Dispatch) -> int:
        name, constants = dispatch.kernel, dispatch.constants
        if name not in self.kernels:
            self.kernels[name] = self._find(name)
        file = self.kernels[name]
        _check_threads(file, file.threads(constants), self._gpu)
        return self.pipelines.number(
            (name, constants),
            lambda: {
                "kernel": name,
                "file": f"kernels/{file.path.name}",
                "entry": file.entry,
                "constants": constants,
                "threads": file.threads(constants),
                "subgroups": file.minds_subgroups,
            },
        )


def _padded(arguments: bytes) -> bytes:
    """Return the whole struct: it holds addresses, so that its size is a multiple of theirs."""
    return arguments + bytes(-len(arguments) % 8)


def _check_threads(file: KernelFile, threads: tuple[int, int, int], gpu: NullGpu) -> None:
    """Refuse workgroups that the GPU cannot have, since it is not there to refuse them itself."""
    limits = gpu.limits
    if prod(threads) > limits.workgroup:
        raise DeviceError(
            f"{gpu.name}: {file.path.stem} has {prod(threads):,} threads; workgroups of "
            f"{limits.workgroup:,} are assumed.",
            hint="assume a larger --workgroup.",
        )
    full = not file.minds_subgroups or threads[0] % limits.subgroup == 0
    assert full, f"{file.path.stem}: {threads} are no whole subgroups of {limits.subgroup}"


def _held(
    repertoire: Repertoire,
    weights: Weights,
    files: Mapping[Path, str],
    tables: bytearray,
    tables_file: str,
) -> dict[Buffer, Item]:
    """Return what each buffer holds."""
    places = repertoire.places
    held: dict[Buffer, Item] = {
        places.step.buffer: {"holds": "step"},
        places.tokens.buffer: {"holds": "tokens"},
        repertoire.ring.buffer: {"holds": "ring"},
        places.arena.buffer: {"holds": "arena"},
    }
    for span in (*places.keys.values(), *places.values.values()):
        held[span.buffer] = {"holds": "cache"}  # of many layers
    for name, span in places.weights.items():
        place = weights[name].place
        assert place is not None, "a model file's tensors have places in it"
        file = {"file": files[place.path], "offset": place.start - span.offset}
        held[span.buffer] = {"holds": "weights", **file}
    for table, span in sorted(places.tables.items()):  # the same in every run
        offset = _find_or_add(tables, table + bytes(-len(table) % READABLE))
        held[span.buffer] = {"holds": "table", "file": tables_file, "offset": offset}
    return held


def _find_or_add(tables: bytearray, table: bytes) -> int:
    """Return where a table is among others."""
    at = tables.find(table)
    if at < 0 or at % READABLE:
        at = len(tables)
        tables += table
    return at
