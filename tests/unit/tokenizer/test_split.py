"""How a text is cut, and how a tokenizer.json's way is recognised."""

import pytest
from tokenizers import Regex, pre_tokenizers

from edgequant.errors import UnsupportedError
from edgequant.tokenizer.split import SPLITS, find_split, recognize_split


def cut(name: str, text: str) -> list[str]:
    """The words, by the library that also runs them."""
    steps = [pre_tokenizers.Split(Regex(p), "isolated") for p in find_split(name, "f").patterns]
    return [word for word, _ in pre_tokenizers.Sequence(steps).pre_tokenize_str(text)]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("llama-bpe", "I'LL pay 12345 €!\n\n  ok", ["I", "'LL", " pay", " ", "123", "45", " €!\n\n", " ", " ok"]),  # noqa: E501
        ("qwen2", "x1234", ["x", "1", "2", "3", "4"]),
        ("gpt-2", "I'll  pay 1234", ["I", "'ll", " ", " pay", " 1234"]),
        ("smollm", "a 12", ["a", " ", "1", "2"]),
        ("tekken", "HelloWorld x/\n", ["Hello", "World", " x", "/\n"]),
        ("gpt-4o", "it'sOK 1234", ["it's", "OK", " ", "123", "4"]),
        ("deepseek-v3", "日本語abc1234", ["日本語", "abc", "123", "4"]),
        ("falcon", "a+b 1234", ["a", "+", "b", " ", "123", "4"]),
    ],
)  # fmt: skip
def test_words_are_those_of_the_rule(name: str, text: str, words: list[str]) -> None:
    assert cut(name, text) == words


@pytest.mark.parametrize("split", SPLITS, ids=lambda split: split.names[0])
def test_nothing_of_a_text_is_lost(split) -> None:
    text = "The 3rd café's  “quote” — 12,345\t日本語 ¿qué?\r\n\n🦙 naïve I'LL x_y  "
    assert "".join(cut(split.names[0], text)) == text


@pytest.mark.parametrize("split", SPLITS, ids=lambda split: split.names[0])
def test_a_rule_is_recognised_by_its_patterns(split) -> None:
    found = recognize_split(
        split.patterns, ignore_merges=split.ignore_merges, compose=split.compose
    )
    assert found is not None
    assert (found.patterns, found.ignore_merges) == (split.patterns, split.ignore_merges)


def test_a_name_means_one_rule() -> None:
    names = [name for split in SPLITS for name in split.names]
    assert len(names) == len(set(names))


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedError, match=r"model.gguf: tokenizer.ggml.pre is 'made-up'") as e:
        find_split("made-up", "model.gguf")
    assert "llama-bpe" in e.value.hint
