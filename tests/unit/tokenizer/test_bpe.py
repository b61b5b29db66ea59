"""Words of short texts are merged in Python: as the engine of long texts does it."""

from pathlib import Path

import numpy as np
import pytest
from bench.make_model import tokenizer_keys

from edgequant.tokenizer import bpe
from edgequant.tokenizer.bpe import LETTERS, ByteLevelBpe
from edgequant.tokenizer.from_gguf import read_tokenizer
from edgequant.tokenizer.merges import Merges
from edgequant.tokenizer.split import find_split
from edgequant.tokenizer.to_gguf import tokenizer_keys as keys_of

ALPHABETS = (
    "abcdefgh  ", "the and of in \n\t.,'", "bdfgklm" "aeiou ", "äöü漢字🙂e ", "0123 \r\n!?"
)  # fmt: skip


@pytest.fixture(scope="module", params=["books", "large"])
def keys(request: pytest.FixtureRequest, books_6m: Path) -> dict[str, object]:
    return keys_of(books_6m, 4096) if request.param == "books" else tokenizer_keys(20_000)


@pytest.mark.parametrize("pre", ["llama-bpe", "smaug-bpe", "qwen2"])
def test_both_ways_agree(
    keys: dict[str, object], pre: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = read_tokenizer({**keys, "tokenizer.ggml.pre": pre}, "here")
    texts = [
        "".join(rng.choice(list(alphabet), int(rng.integers(1, 60))))
        for alphabet in ALPHABETS
        for _ in range(40)
    ]
    short = [tokenizer.encode(text, add_special=False).tolist() for text in texts]
    monkeypatch.setattr(bpe, "SHORT", -1)
    assert short == [tokenizer.encode(text, add_special=False).tolist() for text in texts]


@pytest.mark.parametrize("short", [500, -1])
@pytest.mark.parametrize("whole", ["llama-bpe", "gpt-2"])
def test_what_has_no_token_is_dropped(
    whole: str, short: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bpe, "SHORT", short)
    tokens = [letter for letter in LETTERS if letter != "x"] + ["ab", "abc"]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    merges = Merges(["a b", "ab c"], vocabulary, vocabulary, "here")
    engine = ByteLevelBpe(vocabulary, merges, find_split(whole, "here"))
    assert engine.encode("axbxc") == [vocabulary["abc"]]
    assert engine.encode("") == []
