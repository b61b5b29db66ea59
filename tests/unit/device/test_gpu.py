"""What all GPUs share, on the null GPU: what is recorded, written, submitted and freed."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from threading import Event

import numpy as np
import pytest
from assemble import GOLDEN, assemble
from bench.make_model import SHAPES, write_model
from watching_gpu import LIMITS, Watching

from edgequant.blocks import BLOCK_TYPES, Weight, Weights
from edgequant.device import program as program_module
from edgequant.device.barriers import barriers
from edgequant.device.gpu import GpuDevice
from edgequant.device.null import NullGpu
from edgequant.device.program import AHEAD, GpuProgram
from edgequant.device.protocol import Generator, Observer, Sampling
from edgequant.errors import DeviceError, UnsupportedError
from edgequant.gguf.reader import open_file
from edgequant.graph import Graph
from edgequant.graph.kernels.sample import NOT_FINITE, RING
from edgequant.graph.launch import Limits
from edgequant.model.registry import read_config, read_model

FAST = replace(LIMITS, cooperative_matrix=(16, 16, 16), integer_dot=True)
CONTEXT = 1300
NARROW = "qwen2"  # its heads are of 4 values
GREEDY = Sampling(temperature=0)


def tiny(stem: str = "llama") -> tuple[Graph, Weights]:
    golden = np.load(next(path for path in GOLDEN if path.stem == stem))
    architecture, h = read_config(json.loads(str(golden["config.json"])), "config.json")
    return architecture.record(h), assemble(architecture, h, golden)


@pytest.fixture
def gpu() -> Watching:
    return Watching()


@pytest.fixture
def program(gpu: Watching) -> GpuProgram:
    return GpuDevice("null", gpu).load(*tiny(), context=CONTEXT)


def ids(n: int) -> np.ndarray:
    return np.arange(n, dtype=np.int32) % 50


def pasts(gpu: Watching) -> list[tuple[int, int, int]]:
    return [(int(s["past"]), int(s["tokens"]), int(s["rows"])) for s in gpu.steps]


def test_a_program_can_all_three(program: GpuProgram) -> None:
    assert isinstance(program, Observer)
    assert isinstance(program, Generator)


def test_what_decodes_is_compiled_while_the_file_is_copied(gpu: Watching) -> None:
    def adopt(ranges: object, progress: object) -> list[int]:
        assert prepared.wait(10)
        return list(NullGpu.adopt(gpu, ranges, progress))  # type: ignore[arg-type]

    def prepare(kernels: list[tuple[str, tuple[int, ...]]]) -> None:
        NullGpu.prepare(gpu, kernels)
        prepared.set()

    prepared = Event()
    gpu.adopt, gpu.prepare = adopt, prepare  # type: ignore[assignment]
    program = GpuDevice("null", gpu).load(*tiny(), context=CONTEXT)
    list(program.generate(1, 0, 1, GREEDY))
    assert gpu.prepared == [(d.kernel, d.constants) for d in gpu.submitted[0]]


def test_nothing_is_copied_any_more_after_an_error(
    gpu: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    def adopt(ranges: object, progress: Callable[[int], None]) -> None:
        copying.set()
        while True:
            progress(1)

    def fail(*_: object) -> None:
        assert copying.wait(10)
        raise UnsupportedError("x: no kernel.", hint="none.")

    copying = Event()
    gpu.adopt = adopt  # type: ignore[assignment, method-assign]
    monkeypatch.setattr(program_module, "plan_bucket", fail)
    with pytest.raises(DeviceError, match="x: no kernel"):
        GpuDevice("null", gpu).load(*tiny(), context=CONTEXT)
    assert not gpu.live


def test_a_prompt_is_cut_into_steps_and_only_the_last_computes_logits(
    gpu: Watching, program: GpuProgram
) -> None:
    logits = program.run(ids(700), 5)
    assert logits.shape == (1, 64)
    assert pasts(gpu) == [(5, 512, 1), (517, 64, 1), (581, 64, 1), (645, 60, 1)]
    assert [token for step in gpu.ids for token in step] == ids(700).tolist()
    filling, *_, last = gpu.submitted
    assert last[-1].label == "output"
    assert all(dispatch.label != "output" for dispatch in filling)


def test_no_rows_compute_no_logits(gpu: Watching, program: GpuProgram) -> None:
    assert program.run(ids(70), 0, rows=0).shape == (0, 64)
    assert {d.label for step in gpu.submitted for d in step}.isdisjoint({"output", "Rows"})


def test_rows_are_split_where_the_logits_would_be_large(
    gpu: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_module, "LOGITS_BYTES", 8 * 4 * 64)
    program = GpuDevice("null", gpu).load(*tiny(), context=CONTEXT)
    assert program.run(ids(40), 0, rows=20).shape == (20, 64)
    assert pasts(gpu) == [(0, 28, 8), (28, 8, 8), (36, 4, 4)]


def test_every_bucket_is_recorded_once_and_nothing_is_made_after_loading(
    gpu: Watching, program: GpuProgram
) -> None:
    buffers = len(gpu.places)
    for _ in range(2):
        for n in (1, 2, 8, 9, 64, 500):
            for past in (0, 511, CONTEXT - n):
                for rows in (0, 1, n):
                    program.run(ids(n), past, rows=rows)
            program.observe(ids(n), 3)
        list(program.generate(1, 0, CONTEXT, GREEDY))
        recorded = len(gpu._recordings)
        if _ == 0:
            first = recorded
    assert recorded == first
    assert len(gpu.places) == buffers


@pytest.mark.parametrize("stem", [path.stem for path in GOLDEN if path.stem != NARROW])
@pytest.mark.parametrize("limits", [LIMITS, FAST], ids=["plain", "fast"])
def test_every_bucket_of_every_architecture_stays_in_its_buffers(stem: str, limits: Limits) -> None:
    gpu = Watching(limits)
    program = GpuDevice("null", gpu).load(*tiny(stem), context=CONTEXT)
    for n in (1, 8, 64, 512):
        for past in (0, 600, CONTEXT - n):
            program.run(ids(n), past, rows=min(n, 3))
        program.observe(ids(n), 0)
    list(program.generate(1, 0, 3, GREEDY))
    for dispatches in gpu.submitted:
        for dispatch in dispatches:
            for span in (*dispatch.reads, *dispatch.writes):
                assert 0 <= span.offset <= span.offset + span.nbytes <= len(gpu.live[span.buffer])
            assert dispatch.writes


def test_a_repertoire_is_every_step_of_a_text_and_runs_nothing(
    gpu: Watching, program: GpuProgram
) -> None:
    known = program.repertoire()
    assert known.fills.keys() == known.draws.keys()
    assert {bucket.tokens for bucket in known.draws} == {1, 8, 64, 512}
    assert {bucket.context for bucket in known.draws} == {512, 1024, CONTEXT}
    assert len(known.draws) == 12
    assert all(made.dispatches[-1].label == "sample" for made in known.draws.values())
    assert not any(d.label == "sample" for made in known.fills.values() for d in made.dispatches)
    assert not gpu.submitted
    recorded = len(gpu._recordings)
    list(program.generate(1, 600, 3, GREEDY))
    assert len(gpu._recordings) == recorded  # what is played is what was shown


def test_heads_without_a_kernel_are_said(gpu: Watching) -> None:
    with pytest.raises(DeviceError, match=r"^null: attention: heads of 4 values"):
        GpuDevice("null", gpu).load(*tiny(NARROW), context=8)


def test_a_head_is_whole_blocks_of_the_cache(gpu: Watching) -> None:
    with pytest.raises(
        DeviceError, match=r"heads of \d+ values; a KV cache in Q8_0 takes multiples"
    ):
        GpuDevice("null", gpu, cache="q8_0").load(*tiny(), context=64)
    assert gpu.live == {}


def test_scratch_that_grows_as_buckets_shrink_is_a_kernels_bug(program: GpuProgram) -> None:
    recorder = program._recorder
    arena = replace(recorder._places.arena, nbytes=256)
    recorder._places = replace(recorder._places, arena=arena)
    with pytest.raises(ValueError, match=r"run Bucket\(tokens=8.*must not grow"):
        program.run(ids(3), 0)


def test_calls_beyond_the_context_are_our_bug(program: GpuProgram) -> None:
    for n, past, rows in ((CONTEXT, 1, 1), (5, -1, 1), (5, 0, 6), (0, 0, 0)):
        with pytest.raises(ValueError, match=f"in a context of {CONTEXT}"):
            program.run(ids(n), past, rows=rows)


def test_generated_tokens_chain_without_the_host(gpu: Watching, program: GpuProgram) -> None:
    sampling = Sampling(temperature=0.5, top_k=7, top_p=0.25, min_p=0.125, seed=2**32 + 9)
    assert list(program.generate(42, 10, 5, sampling)) == [100, 101, 102, 103, 104]
    assert gpu.ids == [[42], [100], [101], [102], [103]]
    assert [int(step["past"]) for step in gpu.steps] == [10, 11, 12, 13, 14]
    first = gpu.steps[0]
    assert (first["seed"], first["temperature"], first["top_k"]) == (9, 0.5, 7)
    assert (first["top_p"], first["min_p"], first["drawn"]) == (0.25, 0.125, 0)
    assert not gpu.flying


def test_more_tokens_than_the_ring_holds(program: GpuProgram) -> None:
    count_ = 2 * RING + 3
    assert list(program.generate(1, 0, count_, GREEDY)) == list(range(100, 100 + count_))


def test_generation_ends_with_the_context(gpu: Watching, program: GpuProgram) -> None:
    assert len(list(program.generate(1, CONTEXT - 4, 99, GREEDY))) == 4
    assert int(gpu.steps[-1]["past"]) == CONTEXT - 1


def test_a_larger_context_bucket_takes_over_in_time(gpu: Watching, program: GpuProgram) -> None:
    list(program.generate(1, 509, 6, GREEDY))
    recordings = [gpu.submitted[i] for i in range(6)]
    assert recordings[0] is recordings[2]  # its token sees 512
    assert recordings[2] is not recordings[3]
    assert recordings[3] is recordings[5]


def test_a_closed_iterator_waits_for_what_is_in_flight(gpu: Watching, program: GpuProgram) -> None:
    tokens = program.generate(1, 0, 50, GREEDY)
    assert list(islice(tokens, 4)) == [100, 101, 102, 103]
    assert 0 < len(gpu.flying) < AHEAD
    del tokens
    assert not gpu.flying
    assert len(gpu.steps) < 4 + AHEAD


def test_logits_that_are_not_finite_are_told(gpu: Watching, program: GpuProgram) -> None:
    gpu.draw = iter([100, NOT_FINITE, 0, 0, 0])
    tokens = program.generate(1, 0, 50, GREEDY)
    assert next(tokens) == 100
    with pytest.raises(FloatingPointError, match="not finite"):
        next(tokens)
    assert not gpu.flying


def test_each_linear_is_observed_once_for_all_tokens(gpu: Watching, program: GpuProgram) -> None:
    graph, _ = tiny()
    sums = program.observe(ids(600), 0)
    linears = [name for name in graph.weights if "norm" not in name and "embd" not in name]
    assert set(sums) == set(linears)
    assert {entry.count for entry in sums.values()} == {600}
    assert pasts(gpu) == [(0, 512, 512), (512, 64, 64), (576, 24, 24)]
    watching = [d for d in gpu.submitted[0] if d.label == "observe"]
    assert len(watching) == 4 * 2 + 1  # q k v, output, gate and up, down of two layers; the logits
    written = [(d.writes[0].offset, d.writes[0].nbytes) for d in watching]
    assert written == [(sum(n for _, n in written[:i]), n) for i, (_, n) in enumerate(written)]


def test_closing_gives_everything_back(gpu: Watching, program: GpuProgram) -> None:
    program.run(ids(3), 0, rows=0)
    assert gpu.flying
    program.close()
    assert not gpu.live
    assert all(not dispatches for dispatches, _ in gpu._recordings)


def test_too_little_memory_is_said_with_all_sizes(gpu: Watching) -> None:
    gpu.free_bytes = 200_000
    graph, weights = tiny()
    total = sum(weight.info.nbytes for weight in weights.values())
    with pytest.raises(
        DeviceError,
        match=rf"null: {total:,} bytes of weights, [\d,]+ bytes of KV cache \(1,300 tokens\), "
        r"[\d,]+ bytes of scratch are wanted; the device has 200,000 free, of 200,000",
    ):
        GpuDevice("null", gpu).load(graph, weights, context=CONTEXT)
    assert not gpu.live


def test_weights_that_stay_in_place_do_not_count(gpu: Watching) -> None:
    gpu.free_bytes = 100_000_000
    graph, weights = tiny()
    GpuDevice("null", gpu).load(graph, weights, context=8).close()
    small = GpuDevice("null", gpu).load(graph, weights, context=8)
    resident = sum(map(len, gpu.live.values()))
    small.close()
    gpu.free_bytes = resident - 4000
    with pytest.raises(DeviceError, match="wanted"):
        GpuDevice("null", gpu).load(graph, weights, context=8)
    gpu.in_place = True  # type: ignore[misc]
    GpuDevice("null", gpu).load(graph, weights, context=8).close()


def test_a_format_without_a_kernel_is_named(gpu: Watching) -> None:
    graph, weights = tiny()
    name = "blk.1.ffn_up.weight"
    columns = weights[name].shape[-1]
    odd = replace(weights[name].info, type=BLOCK_TYPES["I8"])
    data = np.zeros((odd.rows, columns), np.uint8)
    tensors = dict(weights) | {name: Weight(odd, data)}
    with pytest.raises(DeviceError, match=rf"^null: {name}: .*I8"):
        GpuDevice("null", gpu).load(graph, Weights(weights.path, (), tensors), context=8)
    assert not gpu.live


def test_activations_say_what_they_are_rounded_to() -> None:
    assert GpuDevice("null", NullGpu(LIMITS)).activations == "float32"
    assert GpuDevice("null", NullGpu(FAST)).activations == "int8 (decode), float16 (prefill)"
    exact = GpuDevice("null", NullGpu(FAST), exact=True)
    assert exact.activations == "float32"


def test_a_layer_of_a_decoded_token_is_five_phases(tmp_path: Path) -> None:
    """Queries, keys and values; attention; its output; gate and up; down. A norm is none."""
    write_model(tmp_path / "m.gguf", SHAPES["tiny"], "Q4_K_M")
    file = open_file(tmp_path / "m.gguf")
    architecture, h = read_model(file.values(), file.tensors, "m.gguf")
    gpu = Watching(replace(FAST, workgroup=1024))
    program = GpuDevice("null", gpu).load(architecture.record(h), file.weights(), context=32)
    program.run(ids(1), 0)
    (dispatches,) = gpu.submitted
    phases: list[list[str]] = []
    for dispatch, waits in zip(dispatches, barriers(dispatches), strict=True):
        if waits or not phases:
            phases.append([])
        phases[-1].append(dispatch.kernel)
    lengths = [len(phase) for phase in phases]
    assert lengths == [1, 1, *[3, 1, 1, 1, 1] * h.layers, 1]
    assert [phases[i][0] for i in (0, 1, 3)] == [
        "embed_q4_k",
        "quantize_activations",
        "attention_f16",
    ]
    assert all("matvec_i8" in kernel for phase in (*phases[4:7], phases[-1]) for kernel in phase)
