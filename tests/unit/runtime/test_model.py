"""Opening a model: what it holds, how long its context may be, and what is refused."""

import gc
import sys
from pathlib import Path

import pytest
from tiny_model import BOS, CONTEXT, EOS, SIZES, write_model

from edgequant.device import open_device
from edgequant.device.protocol import Device
from edgequant.errors import DeviceError, FileError, GGUFError, UnsupportedError
from edgequant.runtime.memory import peak_bytes
from edgequant.runtime.model import DEFAULT_CONTEXT, open_model

CPU = open_device("cpu")


def test_a_model_holds_its_pieces(tmp_path: Path) -> None:
    path, interval = write_model(tmp_path / "m.gguf"), sys.getswitchinterval()
    with open_model(path, CPU) as model:
        assert model.hparams.vocab == SIZES.vocab
        assert model.architecture.name == "llama"
        assert (model.tokenizer.bos, model.tokenizer.eos) == (BOS, EOS)
        assert model.context == model.program.context == CONTEXT
        assert model.path == path
        assert model.device is CPU
        assert sys.getswitchinterval() == interval  # it is shorter only while threads share Python
        assert gc.isenabled()


@pytest.mark.parametrize(
    ("keys", "wanted", "context"),
    [
        ({}, None, CONTEXT),
        ({}, 10, 10),
        ({"llama.context_length": 131072}, None, DEFAULT_CONTEXT),
        ({"llama.context_length": 131072}, 5000, 5000),
        ({"llama.attention.sliding_window": 32}, None, 32),
        ({"llama.attention.sliding_window": 32}, 32, 32),
    ],
)
def test_context(tmp_path: Path, keys: dict[str, object], wanted: int | None, context: int) -> None:
    with open_model(write_model(tmp_path / "m.gguf", keys=keys), CPU, context=wanted) as model:
        assert model.context == context


def test_a_device_may_be_opened_once_the_file_is_known(tmp_path: Path) -> None:
    opened: list[Device] = []

    def opening() -> Device:
        opened.append(CPU)
        return CPU

    with open_model(write_model(tmp_path / "m.gguf"), opening) as model:
        assert model.device is CPU
    with pytest.raises(FileError):
        open_model(tmp_path / "none.gguf", opening)
    assert len(opened) == 1


def test_a_device_that_does_not_open_is_told(tmp_path: Path) -> None:
    def opening() -> Device:
        raise DeviceError("gone: no such device.", hint="use another.")

    with pytest.raises(DeviceError, match=r"gone: no such device\."):
        open_model(write_model(tmp_path / "m.gguf"), opening)


def test_a_context_beyond_the_training_is_refused(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf")
    with pytest.raises(UnsupportedError, match=r"m\.gguf: a context of 65 tokens.*trained for 64"):
        open_model(path, CPU, context=CONTEXT + 1)


def test_a_context_beyond_the_window_is_refused(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", keys={"llama.attention.sliding_window": 32})
    with pytest.raises(UnsupportedError, match=r"context of 33 tokens.*sliding window of 32"):
        open_model(path, CPU, context=33)


def test_an_architecture_we_do_not_know_is_refused_with_those_we_do(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", keys={"general.architecture": "mamba"})
    with pytest.raises(UnsupportedError, match=r"(?s)mamba.*Hint:.*llama.*qwen2.*qwen3"):
        open_model(path, CPU)


def test_keys_that_do_not_fit_the_tensors_are_refused(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", keys={"llama.feed_forward_length": 128})
    with pytest.raises(GGUFError, match=r"m\.gguf: blk\.0\.ffn_.*96.*128"):
        open_model(path, CPU)


def test_a_path_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"none\.gguf: no such file"):
        open_model(tmp_path / "none.gguf", CPU)


def test_peak_memory_counts_what_was_touched() -> None:
    before = peak_bytes()
    block = bytearray(64 << 20)
    block[::4096] = b"x" * len(block[::4096])
    after = peak_bytes()
    assert before is not None
    assert after is not None
    assert after >= (64 << 20)
    assert after >= before
