"""What is written down is what was recorded: the same bytes come of it again."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from assemble import GOLDEN, assemble
from watching_gpu import LIMITS

from edgequant.blocks import Place, Weight, Weights
from edgequant.device.barriers import barriers
from edgequant.device.gpu import GpuDevice
from edgequant.device.kernel_files import METAL, SPIRV, KernelFile
from edgequant.device.null import NullGpu
from edgequant.device.recorder import Repertoire
from edgequant.device.targets import TARGETS
from edgequant.device.transcript import Transcript, write_down
from edgequant.graph.launch import Limits
from edgequant.model.registry import read_config
from edgequant.shipped import shipped

FILE = Path("model.gguf")
NARROW = "qwen2"  # its heads are of 4 values
WIDE = Limits(64, 256, 32 << 10, 1 << 30, None, integer_dot=True)
SETS = dict.fromkeys(
    [LIMITS, *(target.limits for target in TARGETS.values()), replace(WIDE, subgroup=16)]
)


def find(limits: Limits, name: str) -> KernelFile:
    language = METAL if limits.cooperative_matrix == (8, 8, 8) else SPIRV
    return language.find(shipped("shaders"), name)


def in_a_file(weights: Weights) -> Weights:
    """Lay tensors one after the other in a file, as a model's are."""
    content, starts = bytearray(), {}
    for name, weight in weights.items():
        starts[name] = len(content)
        content += weight.data.tobytes() + bytes(-weight.data.nbytes % 32)
    view = memoryview(bytes(content))
    found = {}
    for name, weight in weights.items():
        data = np.frombuffer(view, np.uint8, weight.info.nbytes, starts[name])
        found[name] = Weight(
            weight.info, data.reshape(weight.info.rows, -1), Place(FILE, starts[name])
        )
    return Weights(FILE, (view,), found)


CASES = [
    *(("llama", limits) for limits in SETS),
    *((path.stem, WIDE) for path in GOLDEN if path.stem not in ("llama", NARROW)),
]


@pytest.mark.parametrize(("stem", "limits"), CASES, ids=str)
def test_every_dispatch_of_every_recording_comes_back(stem: str, limits: Limits) -> None:
    golden = np.load(next(path for path in GOLDEN if path.stem == stem))
    architecture, h = read_config(json.loads(str(golden["config.json"])), "config.json")
    weights = in_a_file(assemble(architecture, h, golden))
    gpu = NullGpu(limits)
    program = GpuDevice("null", gpu).load(architecture.record(h), weights, context=600)
    known = program.repertoire()
    tables = bytearray(b"another's table.")
    told = write_down(
        known, gpu, weights, lambda name: find(limits, name), {FILE: "m.gguf"}, tables, "t.bin"
    )
    size = len(tables)
    write_down(
        known, gpu, weights, lambda name: find(limits, name), {FILE: "m.gguf"}, tables, "t.bin"
    )
    assert len(tables) == size  # what is there is found
    numbers = _numbers(known, told, gpu)
    places = known.places
    assert (numbers[places.step.buffer], numbers[places.tokens.buffer]) == (told.step, told.tokens)
    assert numbers[known.ring.buffer] == told.ring
    for buffer, number in numbers.items():
        item, live = told.buffers[number], gpu.live[buffer]
        if item["holds"] == "arena":
            assert buffer == places.arena.buffer
            assert item["bytes"] <= len(live)
            continue
        assert item["bytes"] == len(live)
        if "file" in item:
            whole = weights.mappings[0] if item["holds"] == "weights" else memoryview(tables)
            assert whole[item["offset"] : item["offset"] + item["bytes"]] == live


def _numbers(known: Repertoire, told: Transcript, gpu: NullGpu) -> dict[int, int]:
    """Check every recording, and return what number each buffer has in what is told."""
    numbers: dict[int, int] = {}
    recorded = [*known.fills.values(), *known.draws.values()]
    for item, made in zip(told.recordings, recorded, strict=True):
        stands = [at for at, needed in enumerate(barriers(made.dispatches)) if needed]
        assert item["barriers"] == stands
        for place, dispatch in zip(item["dispatches"], made.dispatches, strict=True):
            written = told.dispatches[place]
            pipeline = told.pipelines[written["pipeline"]]
            assert (pipeline["kernel"], pipeline["constants"], written["workgroups"]) == (
                dispatch.kernel, dispatch.constants, dispatch.workgroups,
            )  # fmt: skip
            for at, (number, offset) in enumerate(written["arguments"]):
                address = int.from_bytes(dispatch.arguments[8 * at :][:8], "little")
                buffer, expected = gpu.locate(address)
                assert offset == expected
                assert numbers.setdefault(buffer, number) == number
            rest = dispatch.arguments[8 * len(written["arguments"]) :]
            assert bytes.fromhex(written["scalars"]) == rest + bytes(-len(rest) % 8)
            for span in (*dispatch.reads, *dispatch.writes):
                assert span.offset + span.nbytes <= told.buffers[numbers[span.buffer]]["bytes"]
            for span in dispatch.writes:
                assert told.buffers[numbers[span.buffer]]["written"]
    assert sorted(numbers.values()) == list(range(len(told.buffers)))
    return numbers
