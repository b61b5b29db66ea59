"""`edgequant devices`, on this machine and on machines that are described."""

import pytest
import typed
from fake_vulkan import FakeDevice, FakeVulkan

import edgequant
from edgequant.cli import _device
from edgequant.device.metal import objc
from edgequant.device.vulkan import hardware


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Return a function that puts Vulkan devices into this machine, or takes Vulkan away."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(objc, "find_runtime", lambda: "this machine is not Apple's.")
    hardware._start.cache_clear()

    def put(*devices: FakeDevice, library: bool = True) -> None:
        monkeypatch.setattr(hardware, "load", lambda: FakeVulkan(devices) if library else None)

    yield put
    hardware._start.cache_clear()


def test_a_gpu_and_what_it_can_do(machine) -> None:
    machine(FakeDevice("Software", kind=4), FakeDevice())
    result = typed.invoke("devices")
    assert result.exit_code == 0
    assert result.stdout.startswith(
        "metal     not here: this machine is not Apple's.\n"
        "vulkan:0  Fake 9000 (the choice of --device auto)\n"
        "          discrete GPU, 8.00 GiB, UUID 000102030405060708090a0b0c0d0e0f\n"
        "          fake, 1.2.3; Vulkan 1.3, subgroups of 32, matrices of 16 x 8 x 16, "
        "int8 dot products\n"
        "          self-test: not run yet; it runs when a model is loaded, or with --self-test\n"
        "vulkan:1  Software\n"
    )
    assert "reads files in place" in result.stdout
    assert "\ncpu       NumPy" in result.stdout


def test_a_device_that_cannot_be_used_says_why(machine) -> None:
    machine(FakeDevice("New"), FakeDevice("Old", api=(1, 2)))
    lines = typed.invoke("devices").stdout.splitlines()
    assert lines[5:7] == ["vulkan:1  Old", "          not used: it lacks Vulkan 1.3."]
    assert not any("self-test" in line for line in lines[6:])


def test_no_vulkan_at_all(machine) -> None:
    machine(library=False)
    result = typed.invoke("devices")
    assert "vulkan" in result.stdout
    assert "not here: no Vulkan library is installed (Debian: libvulkan1)." in result.stdout
    assert "(the choice of --device auto)" in result.stdout


def test_kernels_that_compute_nothing_fail_the_self_test(machine, monkeypatch) -> None:
    monkeypatch.setattr("edgequant.stages.devices.names", lambda: ("F32", "Q4_0", "TQ1_0"))
    machine(FakeDevice())
    result = typed.invoke("devices", "--self-test")
    assert result.exit_code == 1
    first, *lines = result.stdout.splitlines()
    assert first.startswith(f"edgequant {edgequant.__version__}, Python 3.")
    line, model = (line.strip() for line in lines if "FAILED" in line)
    assert model.startswith("a small model: FAILED, vulkan:0: Fake 9000, fake, 1.2.3")
    assert "fails its self-test" in model
    assert "FAILED for F32, random, 97 x 512 by 1 tokens: error 1.0e+00; Q4_0, " in line
    assert "TQ1_0" not in line
    assert typed.invoke("devices", "--self-test", "-q").stdout == ""


def test_json(machine) -> None:
    machine(FakeDevice())
    report = typed.read_json("devices")
    vulkan, cpu = report["devices"][1], report["devices"][-1]
    assert vulkan == {
        "name": "vulkan:0",
        "auto": True,
        "hardware": "Fake 9000",
        "driver": "fake, 1.2.3",
        "kind": "discrete GPU",
        "uuid": bytes(range(16)).hex(),
        "memory_bytes": 8 << 30,
        "missing": None,
        "abilities": [
            "Vulkan 1.3", "subgroups of 32", "matrices of 16 x 8 x 16", "int8 dot products",
        ],
        "self_test": {},
        "whole_model": None,
    }  # fmt: skip
    assert (cpu["name"], cpu["self_test"], cpu["auto"]) == ("cpu", None, False)


@pytest.mark.parametrize(
    ("words", "device"),
    [
        ("run m.gguf -p x", "auto"),
        ("bench m.gguf --device vulkan:1", "vulkan:1"),
        ("run m.gguf --device=vulkan -p x", "vulkan"),
        ("run m.gguf --device metal --device vulkan -p x", "vulkan"),
        ("run m.gguf -p x --device", ""),
        ("run m.gguf -p x --device cpu", None),
        ("run m.gguf -p x --device=llama", None),
        ("run m.gguf -p x --exact", None),
        ("run m.gguf -p x --cache-type=q8_0", None),
        ("run --help", None),
        ("inspect m.gguf", None),
        ("", None),
    ],
)
def test_devices_open_early_for_commands_that_compute(words: str, device: str | None) -> None:
    assert _device(words.split()) == device
