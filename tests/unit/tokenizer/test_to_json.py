"""A tokenizer.json made of GGUF keys: Hugging Face's library reads it, and finds our ids."""

import json

import pytest
from tokenizers import Tokenizer as Theirs

from edgequant.tokenizer.from_gguf import read_tokenizer
from edgequant.tokenizer.to_json import tokenizer_json


def both(keys):
    ours = read_tokenizer(keys, "m.gguf")
    return ours, Theirs.from_str(json.dumps(tokenizer_json(keys, ours)))


@pytest.mark.parametrize(
    "text", ["hello world", " hello  held", "é\n==heworld<s>", "<|im_end|>hello<s>", ""]
)
def test_a_byte_level_vocabulary(byte_level, text) -> None:
    ours, theirs = both(byte_level)
    ids = ours.encode(text, parse_special=True).tolist()
    assert theirs.encode(text).ids == ids
    assert theirs.decode(ids) == ours.decode(ids)
    assert theirs.get_vocab_size() == ours.size


@pytest.mark.parametrize("text", ["ab abab", "aab b", "é c a", "\u2603 ab", ""])
def test_a_vocabulary_with_scores(scored, text) -> None:
    ours, theirs = both(scored)
    ids = ours.encode(text).tolist()
    if text:  # the library puts no space before nothing
        assert theirs.encode(text).ids == ids
    assert theirs.decode(ids) == ours.decode(ids)


def test_what_is_not_added_and_what_cannot_be_merged(byte_level) -> None:
    byte_level["tokenizer.ggml.add_bos_token"] = False
    byte_level["tokenizer.ggml.merges"] = ["h e", "h e", "< s>"]
    byte_level["tokenizer.ggml.tokens"][200] = "s>"
    ours, theirs = both({k: v for k, v in byte_level.items() if "bos" not in k})
    found = tokenizer_json(byte_level, ours)
    assert found["post_processor"] is None
    assert found["model"]["merges"] == [("h", "e")]
    assert [token["content"] for token in found["added_tokens"]] == ["<s>", "<|im_end|>", "=="]
    assert theirs.token_to_id("<|im_end|>") == 265


def test_text_is_composed_where_the_rule_says_so(byte_level) -> None:
    ours, theirs = both(byte_level | {"tokenizer.ggml.pre": "qwen2"})
    assert theirs.encode("e\u0301").ids == ours.encode("e\u0301").tolist()
    assert len(ours.encode("e\u0301")) == 3  # BOS and the two bytes of é
