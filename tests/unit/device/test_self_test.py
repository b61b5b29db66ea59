"""The self-test of a GPU that computes nothing, and what is kept of it."""

import numpy as np
import pytest

from edgequant.device import self_test as module
from edgequant.device.null import NullGpu
from edgequant.device.self_test import ALLOWED, SelfTest, Verdict, passed
from edgequant.errors import DeviceError
from edgequant.graph.launch import Limits

LIMITS = Limits(32, 1024, 49152, 1 << 30, cooperative_matrix=None, integer_dot=True)


@pytest.fixture
def self_test(tmp_path):
    return SelfTest(NullGpu(LIMITS), "null", tmp_path / "new" / "notes.json")


def test_kernels_that_compute_nothing_are_told(self_test):
    with pytest.raises(DeviceError) as caught:
        self_test.ensure({"Q4_K", "F16"})
    assert caught.value.what == (
        "null: null GPU fails its self-test (squared error as a share of the result's squares, "
        "1e-03 allowed): F16, random, 97 x 512 by 1 tokens: 1.0e+00; "
        "Q4_K, random, 97 x 512 by 1 tokens: 1.0e+00."
    )
    assert passed(self_test._file) == set()
    assert self_test._gpu.live == {}  # nothing is left behind


def test_a_format_without_kernels_does_no_harm(self_test):
    assert list(self_test.examine(["TQ1_0"])) == [Verdict("TQ1_0", None)]
    self_test.ensure({"TQ1_0"})
    assert passed(self_test._file) == set()  # a later version may have one


def test_all_kernels_are_compiled_ahead_and_no_other(self_test):
    gpu = self_test._gpu
    list(self_test.examine(["Q4_K", "F16", "TQ1_0"]))
    run = {(d.kernel, d.constants) for dispatches in gpu.submitted for d in dispatches}
    assert set(gpu.prepared) == run
    assert any(kernel == "matvec_i8_q4_k" for kernel, _ in run)


def test_what_passed_is_not_tried_again(self_test):
    self_test._file.parent.mkdir()
    self_test._file.write_text('["Q4_K"]')
    self_test.ensure({"Q4_K"})
    assert self_test._gpu.submitted == []


@pytest.mark.parametrize("content", ["", "{", "7", "[[]]"])
def test_damaged_notes_are_no_notes(self_test, content, monkeypatch):
    self_test._file.parent.mkdir()
    self_test._file.write_text(content)
    assert passed(self_test._file) == set()
    monkeypatch.setattr(module, "ALLOWED", 1.5)  # zeros are wrong by 1
    for name in ("F16", "Q8_0"):
        self_test.ensure([name])
    assert passed(self_test._file) == {"F16", "Q8_0"}


def test_notes_that_cannot_be_kept_are_done_without(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ALLOWED", 1.5)
    (tmp_path / "file").touch()
    self_test = SelfTest(NullGpu(LIMITS), "null", tmp_path / "file" / "notes.json")
    self_test.ensure(["F16"])
    assert passed(self_test._file) == set()


@pytest.mark.parametrize(
    ("error", "passed"), [(0.0, True), (ALLOWED, True), (2 * ALLOWED, False), (np.inf, False)]
)
def test_a_verdict(error, passed):
    assert Verdict("Q4_K", error).passed == passed
