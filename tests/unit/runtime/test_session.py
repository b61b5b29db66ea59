"""Prefill in any batches equals decoding; rewinding forgets; broken weights are named."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tiny_model import CONTEXT, SIZES, write_model

from edgequant.device import open_device
from edgequant.errors import GGUFError
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
