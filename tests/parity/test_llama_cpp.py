"""The NumPy engine and llama.cpp on the same files, made by us of the bundled checkpoint.

On F16 files the two agree but for rounding. On Q4_K_M files llama.cpp's CPU rounds activations to
8 bits, so there only perplexity and most of the likeliest tokens do. The full figures, on longer
texts and the bigger model, are in the README.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from prompts import LENGTH, PROMPTS

from edgequant.device import open_device
from edgequant.runtime.model import Model, open_model
from edgequant.shipped import shipped
from edgequant.stages.convert import convert
from edgequant.stages.perplexity import measure_perplexity
from edgequant.stages.quantize import quantize
from edgequant.stages.text import cut

pytestmark = pytest.mark.oracle
CHUNKS = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parity")


@pytest.fixture(scope="module")
def f16(folder: Path, books_6m: Path) -> Path:
    convert(str(books_6m), folder / "f16.gguf")
    return folder / "f16.gguf"


@pytest.fixture(scope="module")
def q4_k_m(folder: Path, f16: Path) -> Path:
    quantize(f16, folder / "q4_k_m.gguf", type="Q4_K_M")
    return folder / "q4_k_m.gguf"


@pytest.fixture(scope="module")
def text() -> Path:
    """Only a text that both engines read; nothing is learnt from it here."""
    return min(shipped("calibration").glob("*.txt"))


def perplexities(path: Path, text: Path) -> tuple[float, float]:
    cpu, llama = (
        measure_perplexity(path, text, chunks=CHUNKS, device=device) for device in ("cpu", "llama")
    )
    assert cpu.tokens == llama.tokens == CHUNKS * 255
    return cpu.perplexity, llama.perplexity


def greedy(model: Model, prompt: str) -> list[int]:
    session = model.session()
    logits = session.prefill(model.tokenizer.encode(prompt))
    found: list[int] = []
    for _ in range(LENGTH):
        found.append(int(logits.argmax()))
        logits = session.decode(found[-1])
    return found


def likeliest(model: Model, chunks: Sequence[np.ndarray]) -> np.ndarray:
    session = model.session()
    found = []
    for chunk in chunks:
        session.rewind()
        found.extend(logits.argmax(axis=1) for logits in session.scan(chunk, len(chunk)))
    return np.concatenate(found)


def test_f16_perplexity(f16: Path, text: Path) -> None:
    cpu, llama = perplexities(f16, text)
    assert cpu == pytest.approx(llama, rel=1e-3)


@pytest.mark.slow
def test_f16_greedy_text_is_equal(f16: Path) -> None:
    texts = []
    for device in ("cpu", "llama"):  # one after the other: their idle threads spin
        with open_model(f16, open_device(device)) as model:
            texts.append({prompt: greedy(model, prompt) for prompt in PROMPTS})
    assert texts[0] == texts[1]


def test_q4_k_m_perplexity_and_likeliest_tokens(q4_k_m: Path, text: Path) -> None:
    cpu, llama = perplexities(q4_k_m, text)
    assert cpu == pytest.approx(llama, rel=1e-2)
    found = []
    for device in ("cpu", "llama"):
        with open_model(q4_k_m, open_device(device)) as model:
            chunks = cut(
                model.tokenizer, text.read_text("utf-8"), context=512, chunks=2, where="text"
            )
            found.append(likeliest(model, list(chunks)))
    assert np.mean(found[0] == found[1]) >= 0.9


@pytest.mark.slow
@pytest.mark.shared
def test_perplexity_is_llama_perplexitys(f16: Path, shared: Path) -> None:
    """llama-perplexity says 27.6424 ± 0.72467 of 40 chunks, in ../shared/oracle/perplexity.json."""
    text = shared / "data" / "books-heldout.txt"
    for device in ("cpu", "llama"):
        found = measure_perplexity(f16, text, chunks=40, device=device)
        assert found.perplexity == pytest.approx(27.6424, rel=1e-3)
        assert found.error == pytest.approx(0.72467, rel=1e-3)
