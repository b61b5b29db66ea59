"""The NumPy device: chunks, memory, and what it observes."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from assemble import GOLDEN, assemble, weight

from edgequant.blocks import BLOCK_TYPES, TensorInfo, Weight, Weights
from edgequant.device import open_device
from edgequant.device.cpu import CpuDevice, CpuProgram
from edgequant.device.memory import FALLBACK, available_bytes
from edgequant.device.protocol import Observer
from edgequant.errors import DeviceError, UnsupportedError
from edgequant.graph import Graph
from edgequant.graph.ops.embed import Embed
from edgequant.graph.ops.linear import Linear
from edgequant.graph.ops.rows import Rows
from edgequant.model.registry import read_config

Made = tuple[Graph, Weights]
TOKENS = np.arange(20, dtype=np.int32) * 3


@pytest.fixture(scope="module", params=GOLDEN, ids=lambda path: path.stem)
def made(request: pytest.FixtureRequest) -> Made:
    golden = np.load(request.param)
    architecture, h = read_config(json.loads(str(golden["config.json"])), "config.json")
    return architecture.record(h), assemble(architecture, h, golden)


def load(made: Made, context: int = 24) -> CpuProgram:
    return CpuDevice().load(*made, context=context)


def fed(program: CpuProgram, size: int) -> Iterator[np.ndarray]:
    for start in range(0, len(TOKENS), size):
        part = TOKENS[start : start + size]
        yield program.run(part, start, rows=len(part))


@pytest.mark.parametrize("size", [1, 7])
def test_prefill_equals_decode(made: Made, size: int) -> None:
    whole = load(made).run(TOKENS, 0, rows=20)
    parts = np.concatenate(list(fed(load(made), size)))
    assert np.abs(parts - whole).max() < 4e-6 * np.abs(whole).max()


def test_no_rows_fill_the_cache(made: Made) -> None:
    program, last = load(made), load(made).run(TOKENS, 0)
    assert program.run(TOKENS[:19], 0, rows=0).shape == (0, last.shape[1])
    assert np.abs(program.run(TOKENS[19:], 19) - last).max() < 4e-6 * np.abs(last).max()


def test_only_the_rows_asked_for(made: Made) -> None:
    program = load(made)
    whole = program.run(TOKENS, 0, rows=20)
    some = program.run(TOKENS, 0, rows=3)
    assert some.shape == (3, whole.shape[1])
    assert some == pytest.approx(whole[17:], rel=1e-5, abs=1e-5)


def test_going_back_forgets(made: Made) -> None:
    program = load(made)
    once = program.run(TOKENS[:9], 0)
    program.run(TOKENS[::-1].copy(), 0)
    program.run(TOKENS[:5], 0)
    assert program.run(TOKENS[5:9], 5) == pytest.approx(once, rel=1e-5, abs=1e-5)


def test_weights_that_do_not_fit_are_decoded_on_use(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = load(made).run(TOKENS, 0, rows=20)
    monkeypatch.setattr("edgequant.device.cpu.KEPT_SHARE", 0.0)
    program = load(made)
    held = [m.weight.name for m in program._matrices.values() if m.whole is not None]
    assert all("norm" in name or "bias" in name or "freqs" in name for name in held)
    assert program.run(TOKENS, 0, rows=20) == pytest.approx(kept, rel=1e-6, abs=1e-6)


def test_it_observes_every_linear(made: Made) -> None:
    program = load(made)
    assert isinstance(program, Observer)
    first, second = program.observe(TOKENS[:12], 0), program.observe(TOKENS[12:], 12)
    whole = load(made).observe(TOKENS, 0)
    linears = {
        name for node in made[0].nodes if isinstance(node.op, Linear) for name in node.weights
    }
    assert whole.keys() == first.keys() == linears
    for name, sums in whole.items():
        assert sums.in_sum2.dtype == np.float32
        assert (first[name].count, second[name].count, sums.count) == (12, 8, 20)
        parts = first[name].in_sum2 + second[name].in_sum2
        assert parts == pytest.approx(sums.in_sum2, rel=1e-5)


def tiny(fmt: str = "F32") -> Made:
    """out = embedding @ W: what it observes can be said by hand."""
    graph = Graph()
    x = graph.add(Embed(256), weight="embed")
    graph.add(Linear(256, 3), graph.add(Rows(), x), weight="out")
    table = np.arange(1024, dtype=np.float32).reshape(4, 256) / 100
    made = {"embed": weight("embed", table), "out": weight("out", np.ones((3, 256)), fmt)}
    return graph, Weights(Path("made"), (), made)


def test_what_it_observes_are_squares_of_inputs() -> None:
    sums = load(tiny()).observe(np.array([1, 3], np.int32), 0)
    wanted = (np.arange(256, 512) / 100) ** 2 + (np.arange(768, 1024) / 100) ** 2
    assert sums["out"].count == 2
    assert sums["out"].in_sum2 == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize(
    ("tokens", "past", "rows"), [(25, 0, 1), (5, 20, 1), (5, 0, 6), (5, 0, -1), (0, 0, 0)]
)
def test_calls_beyond_the_context_are_our_bug(tokens: int, past: int, rows: int) -> None:
    with pytest.raises(ValueError, match=f"{tokens} tokens after {past}, {rows} rows, in a"):
        load(tiny()).run(np.zeros(tokens, np.int32), past, rows=rows)


def test_a_cache_that_does_not_fit_is_refused(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgequant.device.cpu.available_bytes", lambda: 100_000)
    message = r"cpu: the KV cache of a context of 5,000 takes [\d,]+,000 bytes; 100,000 are free"
    with pytest.raises(DeviceError, match=message) as caught:
        load(made, context=5000)
    assert caught.value.hint == "use a smaller --ctx."


def test_a_cache_that_the_system_refuses(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgequant.device.cpu.available_bytes", lambda: 1 << 62)
    with pytest.raises(DeviceError, match="the KV cache of a context of 1,000,000,000,000 takes"):
        load(made, context=10**12)


def test_a_step_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    program = load(tiny())

    def exhausted(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Linear, "reference", exhausted)
    with pytest.raises(DeviceError, match=r"a step of 9 tokens after 3; [0-9,]+ bytes"):
        program.run(TOKENS[:9] % 4, 3)


def test_what_is_not_finite_ends_in_logits_that_are_not(made: Made) -> None:
    graph, weights = made
    bad = weights["blk.0.ffn_up.weight"].data.copy()
    bad[0, :4] = np.float32([np.inf]).view(np.uint8)
    info = weights["blk.0.ffn_up.weight"].info
    damaged = {**weights, info.name: Weight(info, bad)}
    logits = load((graph, Weights(Path("made"), (), damaged))).run(TOKENS, 0)
    assert not np.isfinite(logits).all()


def test_a_format_it_cannot_decode_is_refused_at_load() -> None:
    graph, weights = tiny()
    odd = Weight(TensorInfo("out", BLOCK_TYPES["Q8_K"], (3, 256)), np.zeros((3, 292), np.uint8))
    broken = Weights(Path("made"), (), {**weights, "out": odd})
    with pytest.raises(UnsupportedError, match="Q8_K: not a block format"):
        load((graph, broken))


def test_closing_gives_memory_back() -> None:
    program = load(tiny())
    program.close()
    assert not program._matrices
    assert not program._cache


def test_it_is_opened_by_name() -> None:
    device = open_device("cpu", observe=True)
    assert (device.name, device.activations) == ("cpu", "float32")
    assert device.description.startswith(f"NumPy {np.__version__}, ")
    assert open_device("cpu:0").name == "cpu"
    with pytest.raises(DeviceError, match="cpu:1: there is only one CPU device"):
        open_device("cpu:1")
    with pytest.raises(DeviceError, match="abacus: no such device") as caught:
        open_device("abacus")
    assert caught.value.hint == "use one of auto, metal, vulkan, llama, cpu."


def test_threads_are_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    assert CpuDevice().description.endswith(", 3 threads")


def test_available_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meminfo, group = tmp_path / "meminfo", tmp_path / "group"
    group.mkdir()
    meminfo.write_text("MemTotal: 9 kB\nMemAvailable:    8 kB\n")
    assert available_bytes(meminfo, group) == 8192
    (group / "memory.max").write_text("5000\n")
    (group / "memory.current").write_text("1000\n")
    assert available_bytes(meminfo, group) == 4000
    (group / "memory.max").write_text("max\n")
    assert available_bytes(meminfo, group) == 8192
    meminfo.write_text("MemAvailable: many")
    assert available_bytes(meminfo, group) > 0
    monkeypatch.delattr("os.sysconf")
    assert available_bytes(meminfo, group) == FALLBACK
