"""Kernels of a step are timed, counted and held against what the device can do."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tiny_model import SIZES, write_model
from watching_gpu import LIMITS

from edgequant.device.gpu import GpuDevice
from edgequant.device.null import NullGpu
from edgequant.errors import DeviceError
from edgequant.stages import profile as profile_module
from edgequant.stages.profile import KernelTime, Profile, profile

STEP = 2e-6  # seconds of every dispatch


class Clock(NullGpu):
    """A null GPU on which everything takes equally long."""

    def wait(self, ticket: int) -> Sequence[float]:
        return [STEP] * len(super().wait(ticket))


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Profile, ...]:
    device = GpuDevice("null", Clock(LIMITS))
    monkeypatch.setattr(profile_module, "open_device", lambda _choice: device)
    monkeypatch.setattr(profile_module, "WARM", 0.0)
    path = write_model(tmp_path / "m.gguf")
    return profile(path, prompts=(20, 0), depths=(0, 30), repetitions=2)


def kernel(found: Profile, label: str, stem: str) -> KernelTime:
    (one,) = (k for k in found.kernels if k.label == label and k.kernel.startswith(stem))
    return one


def test_steps_are_named_as_bench_names_them(profiles: tuple[Profile, ...]) -> None:
    assert [found.test for found in profiles] == ["tg1", "pp20", "tg1 @ d30", "pp20 @ d30"]


def test_times_and_shares_add_up(profiles: tuple[Profile, ...]) -> None:
    for found in profiles:
        assert found.seconds == pytest.approx(sum(k.seconds for k in found.kernels))
        assert sum(k.share for k in found.kernels) == pytest.approx(1)
        assert found.seconds == pytest.approx(STEP * sum(k.calls for k in found.kernels))
        assert [k.seconds for k in found.kernels] == sorted(
            (k.seconds for k in found.kernels), reverse=True
        )


def test_a_linear_reads_its_weight_and_multiplies_each_token(
    profiles: tuple[Profile, ...],
) -> None:
    rows, columns = SIZES.heads_kv * SIZES.head_dim, SIZES.embed
    for found, tokens, padded in ((profiles[0], 1, 1), (profiles[1], 20, 64)):
        keys = kernel(found, "attn_k", "mat")
        assert keys.calls == SIZES.layers
        assert keys.gflop_per_second == pytest.approx(2 * tokens * rows * columns / STEP / 1e9)
        # F16 weights; activations in float32; the record
        read = 2 * rows * columns + 4 * padded * columns
        assert keys.read_gb_per_second == pytest.approx(read / STEP / 1e9, rel=2e-2)
        share = keys.read_gb_per_second / found.read_ceiling_gb_per_second
        assert keys.read_share == pytest.approx(share)
        share = keys.gflop_per_second / found.multiply_ceiling_gflop_per_second
        assert keys.multiply_share == pytest.approx(share)


def test_the_output_multiplies_one_row_and_the_embedding_none(
    profiles: tuple[Profile, ...],
) -> None:
    prefill = profiles[1]
    output = kernel(prefill, "output", "mat")
    assert output.gflop_per_second == pytest.approx(2 * SIZES.vocab * SIZES.embed / STEP / 1e9)
    embed = kernel(prefill, "token_embd", "embed")
    assert embed.gflop_per_second == 0
    assert embed.read_gb_per_second < 2 * SIZES.vocab * SIZES.embed / STEP / 1e9


def test_attention_reads_what_the_cache_holds(profiles: tuple[Profile, ...]) -> None:
    width, context = 2 * 2 * SIZES.heads_kv * SIZES.head_dim, 50
    found = [kernel(profiles[i], "attention", "attention").read_gb_per_second for i in (0, 2)]
    grown = (found[1] - found[0]) * STEP * 1e9
    assert grown == pytest.approx(30 * width, abs=2), context


def test_a_device_without_a_clock_says_so(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf")
    with pytest.raises(DeviceError, match="cpu: this device cannot time its kernels"):
        profile(path, prompts=(8,), device="cpu")


def test_a_step_is_run_until_the_device_is_awake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = Clock(LIMITS)
    monkeypatch.setattr(profile_module, "open_device", lambda _choice: GpuDevice("null", gpu))
    monkeypatch.setattr(profile_module, "WARM", 0.05)
    profile(write_model(tmp_path / "m.gguf"), prompts=(), repetitions=2)
    assert sum("embed" in step[0].kernel for step in gpu.submitted) > 3
