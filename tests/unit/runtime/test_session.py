"""Prefill in any batches equals decoding; rewinding forgets; broken weights are named."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from tiny_model import CONTEXT, SIZES, write_model
from watching_gpu import Watching

from edgequant.device import open_device
from edgequant.device.gpu import GpuDevice
from edgequant.device.protocol import Sampling
from edgequant.errors import GGUFError
from edgequant.graph.kernels.sample import NOT_FINITE
from edgequant.runtime import session as session_module
from edgequant.runtime.model import Model, open_model
from edgequant.runtime.session import Session


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Model]:
    with open_model(write_model(tmp_path / "m.gguf"), open_device("cpu")) as model:
        yield model


@pytest.fixture
def tokens(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, SIZES.vocab, 20, dtype=np.int32)


def near(found: np.ndarray, expected: np.ndarray) -> bool:
    return bool(np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("batch", [1, 3, 7, 20, 512])
@pytest.mark.parametrize("rows", [1, 6, 20])
def test_batches_do_not_matter(model: Model, tokens: np.ndarray, batch: int, rows: int) -> None:
    whole = model.program.run(tokens, 0, rows=20)
    session = Session(model.program, SIZES.vocab, "m", batch=batch)
    parts = list(session.scan(tokens, rows))
    assert sum(len(part) for part in parts) == rows
    assert near(np.concatenate(parts), whole[20 - rows :])
    assert session.past == 20
    assert session.room == CONTEXT - 20


def test_logits_come_in_slices_of_bounded_size(
    model: Model, tokens: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "LOGITS_BYTES", 3 * 4 * SIZES.vocab)
    parts = list(model.session().scan(tokens, 8))
    assert [len(part) for part in parts] == [3, 3, 2]
    assert near(np.concatenate(parts), model.program.run(tokens, 0, rows=8))


def test_filling_is_prefilling_without_logits(model: Model, tokens: np.ndarray) -> None:
    session = model.session()
    expected = session.prefill(tokens)
    session.rewind()
    session.fill(tokens[:19])
    assert session.past == 19
    assert near(session.decode(int(tokens[19])), expected)


def test_prefill_equals_decodes_and_rewinding_forgets(model: Model, tokens: np.ndarray) -> None:
    session = model.session()
    expected = session.prefill(tokens)
    assert expected.shape == (SIZES.vocab,)
    session.rewind()
    for token in tokens:
        last = session.decode(int(token))
    assert near(last, expected)
    session.rewind(5)
    session.prefill(tokens[::-1])
    session.rewind(5)
    assert near(session.prefill(tokens[5:]), expected)


def test_misuse_is_a_bug_of_the_caller(model: Model, tokens: np.ndarray) -> None:
    session = model.session()
    with pytest.raises(ValueError, match="65 tokens do not fit in the 64 left"):
        session.prefill(np.zeros(CONTEXT + 1, dtype=np.int32))
    with pytest.raises(ValueError, match="0 tokens do not fit"):
        session.prefill([])
    session.prefill(tokens)
    with pytest.raises(ValueError, match="cannot rewind to 21: 20 tokens"):
        session.rewind(21)


def test_weights_that_are_not_finite_are_named(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", damage="output_norm.weight")
    with open_model(path, open_device("cpu")) as model:
        session = model.session()
        with pytest.raises(GGUFError, match=r"m\.gguf: after 2 tokens its logits are not finite"):
            session.prefill([1, 2])


@pytest.fixture
def drawing(tmp_path: Path) -> Iterator[tuple[Session, Watching]]:
    """A session on a null GPU, which draws 100, 101, 102 and so on."""
    gpu = Watching()
    device = GpuDevice("null", gpu)
    with open_model(write_model(tmp_path / "m.gguf"), device) as model:
        yield model.session(), gpu


def test_drawn_tokens_are_fed_as_they_are_taken(drawing: tuple[Session, Watching]) -> None:
    session, gpu = drawing
    session.prefill([1, 2, 3])
    assert session.chains
    tokens = session.generate(7, 10, Sampling(temperature=0))
    assert list(islice(tokens, 4)) == [100, 101, 102, 103]
    assert session.past == 7  # whatever was fed beyond is forgotten
    tokens.close()  # type: ignore[attr-defined]
    assert not gpu.flying
    assert next(session.generate(9, 1, Sampling())) == 100 + len(gpu.steps) - 2
    assert gpu.ids[-1] == [9]
    assert int(gpu.steps[-1]["past"]) == 7


def test_drawn_logits_that_are_not_finite_are_named(drawing: tuple[Session, Watching]) -> None:
    session, gpu = drawing
    gpu.draw = iter([5, NOT_FINITE, 0, 0])
    with pytest.raises(GGUFError, match=r"m\.gguf: after 1 tokens its logits are not finite"):
        list(session.generate(1, 9, Sampling()))


def test_misuse_of_drawing_is_a_bug_of_the_caller(
    model: Model, drawing: tuple[Session, Watching]
) -> None:
    assert not model.session().chains
    with pytest.raises(TypeError, match="look at `chains`"):
        next(model.session().generate(1, 1, Sampling()))
    with pytest.raises(ValueError, match="65 steps do not fit in the 64 left"):
        next(drawing[0].generate(1, CONTEXT + 1, Sampling()))
