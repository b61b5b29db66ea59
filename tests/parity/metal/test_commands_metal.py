"""The commands on `--device metal`, where Apple's Objective-C runtime is, or the pretend one."""

from pathlib import Path

import pytest
import typed
from metal_on_cpu.library import compile_library
from pretend_metal import PretendMetal
from tiny_model import write_model

from edgequant.device import ceilings, entries
from edgequant.device.metal import DEVICE, objc
from edgequant.model.imatrix_file import read_importance

pytestmark = [pytest.mark.device, pytest.mark.metal, pytest.mark.slow]
TEXT = Path(__file__).parents[2] / "models" / "evaluation.txt"
DEVICES = ("metal", "cpu")


@pytest.fixture(autouse=True)
def _on_a_mac(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if DEVICE.missing() is not None:
        request.getfixturevalue("mac")
        own = PretendMetal(compile_library)  # what commands open stays open until Python ends
        monkeypatch.setattr(objc, "find_runtime", lambda: own)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_model(tmp_path / "m.gguf")


def test_run(path: Path) -> None:
    words = ("-p", "hello", "-n", "12", "--temp", "0")
    texts = [typed.read_json("run", path, *words, "--device", device) for device in DEVICES]
    assert texts[0]["text"] == texts[1]["text"]
    assert texts[0]["stopped"] == "length"
    assert typed.invoke("run", path, *words, "--device", "auto").stdout.strip()


def test_perplexity_and_compare(path: Path) -> None:
    words = ("-f", TEXT, "--ctx", "32", "--chunks", "2")
    found, expected = (
        typed.read_json("perplexity", path, *words, "--device", device)["perplexity"]
        for device in DEVICES
    )
    assert found == pytest.approx(expected, rel=1e-3)
    (same,) = typed.read_json("compare", path, path, *words, "--device", "metal")["candidates"]
    assert same["kl"] < 1e-6


def test_imatrix(path: Path, tmp_path: Path) -> None:
    for device in DEVICES:
        words = ("-f", TEXT, "--ctx", "32", "--chunks", "2", "--device", device)
        typed.read_json("imatrix", path, "-o", tmp_path / device, *words)
    found, expected = (read_importance(tmp_path / device).entries for device in DEVICES)
    assert found.keys() == expected.keys()
    for name, entry in expected.items():
        assert found[name].in_sum2 == pytest.approx(entry.in_sum2, rel=1e-3)


def test_bench(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "WORKGROUPS", (4,))  # thousands would take a CPU a minute
    words = ("-p", "9", "-n", "3", "-r", "1", "--device", "metal")
    (prefill, decode) = typed.read_json("bench", path, *words, "--cache-type", "f32")
    assert (prefill["type_k"], decode["n_gen"]) == ("f32", 3)
    assert decode["avg_ts"] > 0
    profiles = typed.read_json("bench", path, *words, "--profile", "--exact")
    assert [step["test"] for step in profiles] == ["tg1", "pp9"]
    assert all(step["kernels"] for step in profiles)


def test_devices_and_self_test(monkeypatch: pytest.MonkeyPatch) -> None:
    known = tuple(entry for entry in entries() if entry.name in DEVICES)
    monkeypatch.setattr("edgequant.device.entries", lambda: known)
    monkeypatch.setattr("edgequant.stages.devices.names", lambda: ("F16", "Q4_K", "TQ1_0"))
    result = typed.invoke("devices", "--self-test")
    assert result.exit_code == 0
    assert "\nmetal " in result.stdout
    assert "self-test: passed for 2 formats (F16, Q4_K); no kernel for TQ1_0" in result.stdout
    assert typed.read_json("devices")["devices"][0]["self_test"]["Q4_K"] == "passed"
