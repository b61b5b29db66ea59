"""The llama device keeps the device contract, and agrees with NumPy on files both can read."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tiny_model import CONTEXT, SIZES, write_model

from edgequant.blocks import Weights
from edgequant.device import open_device
from edgequant.errors import DeviceError, GGUFError
from edgequant.graph import Graph
from edgequant.runtime.model import Model, open_model

pytestmark = pytest.mark.oracle
LONG = 1500  # more than two of llama.cpp's batches


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Model]:
    path = write_model(tmp_path / "m.gguf", keys={"llama.context_length": 2048})
    with open_model(path, open_device("llama:2"), context=LONG) as model:
        yield model


@pytest.fixture
def tokens(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, SIZES.vocab, LONG, dtype=np.int32)


def near(found: np.ndarray, expected: np.ndarray, bound: float = 3e-3) -> bool:
    """The KV cache and the products are float16 here: 11 bits, and no sum is long."""
    return bool(np.abs(found - expected).max() <= bound * np.abs(expected).max())


def test_it_says_what_it_is(model: Model) -> None:
    assert model.device.name == "llama"
    assert "llama.cpp" in model.device.description
    assert "2 threads" in model.device.description
    assert model.device.activations == "float16"


@pytest.mark.parametrize(
    ("fmt", "rounded"),
    [("F32", "float32"), ("BF16", "bfloat16"), ("Q8_0", "q8_0"), ("Q5_1", "q8_1")],
)
def test_activations_follow_the_weights(tmp_path: Path, fmt: str, rounded: str) -> None:
    device = open_device("llama")
    with open_model(write_model(tmp_path / "m.gguf", fmt=fmt), device):
        assert device.activations == rounded


def test_any_rows_of_any_length(model: Model, tokens: np.ndarray) -> None:
    whole = model.program.run(tokens, 0, rows=LONG)
    assert whole.shape == (LONG, SIZES.vocab)
    for rows in (1, 511, 513, 1100):
        assert near(model.program.run(tokens, 0, rows=rows), whole[LONG - rows :], bound=1e-5)


def test_going_back_forgets(model: Model, tokens: np.ndarray) -> None:
    expected = model.program.run(tokens[:40], 0, rows=10)
    model.program.run(tokens[::-1][:60], 30)
    assert near(model.program.run(tokens[30:40], 30, rows=10), expected)
    for i in range(40):
        last = model.program.run(tokens[i : i + 1], i)
    assert near(last, expected[-1:])


@pytest.mark.parametrize("fmt", ["F32", "F16", "BF16"])
def test_logits_are_numpys(tmp_path: Path, tokens: np.ndarray, fmt: str) -> None:
    path = write_model(tmp_path / "m.gguf", fmt=fmt)
    found = []
    for name in ("llama", "cpu"):
        with open_model(path, open_device(name)) as model:
            found.append(model.program.run(tokens[:CONTEXT], 0, rows=CONTEXT))
    # bfloat16 activations have 8 bits.
    assert near(*found, bound=3e-2 if fmt == "BF16" else 3e-3)


def test_a_hole_in_the_cache_is_refused(model: Model, tokens: np.ndarray) -> None:
    model.program.run(tokens[:5], 0)
    with pytest.raises(DeviceError, match=r"1 tokens at position 9 of 1,500 gives code -1"):
        model.program.run(tokens[:1], 9)
    assert near(model.program.run(tokens[:5], 0), model.program.run(tokens[:5], 0))


def test_a_file_that_llama_cpp_cannot_load_says_why(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "not.gguf"
    path.write_bytes(b"root" * 100)
    device = open_device("llama")
    with pytest.raises(DeviceError, match=r"not\.gguf: llama\.cpp cannot load it \(.*magic"):
        device.load(Graph(), Weights(path, (), {}), context=8)
    assert capfd.readouterr() == ("", "")


def test_a_context_larger_than_memory_is_refused_before_anything_is_taken(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", keys={"llama.context_length": 1 << 30})
    with pytest.raises(
        DeviceError, match=r"a context of 1,073,741,824 take [\d,]+ bytes; [\d,]+ are"
    ):
        open_model(path, open_device("llama"), context=1 << 30)


def test_a_context_that_llama_cpp_cannot_make_is_our_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import llama_cpp

    monkeypatch.setattr(llama_cpp, "llama_init_from_model", lambda *_: None)
    with pytest.raises(
        DeviceError, match=r"m\.gguf: llama\.cpp cannot make a context of 64 tokens"
    ):
        open_model(write_model(tmp_path / "m.gguf"), open_device("llama"))


def test_closing_twice_is_harmless_and_running_closed_is_a_bug(
    model: Model, tokens: np.ndarray
) -> None:
    model.program.close()
    model.program.close()
    with pytest.raises(ValueError, match="closed"):
        model.program.run(tokens[:1], 0)


def test_weights_that_are_not_finite_are_named(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", damage="output_norm.weight")
    with (
        open_model(path, open_device("llama")) as model,
        pytest.raises(GGUFError, match="logits are not finite"),
    ):
        model.session().prefill([1, 2])
