"""Tokenizers from the keys of a file: what they do, and which keys are refused."""

import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgequant.errors import EdgequantError, GGUFError, TextError, UnsupportedError
from edgequant.tokenizer.bpe import LETTERS, SHORT
from edgequant.tokenizer.from_gguf import read_tokenizer

KEY = "tokenizer.ggml."
ANY_TEXT = st.text(max_size=40)
FIXTURE_IS_READ_ONLY = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50
)


def tokens_of(tokenizer, text: str, **options) -> list[str]:
    return [tokenizer.token(int(i)) for i in tokenizer.encode(text, add_special=False, **options)]


def test_byte_level_merges_in_order(byte_level) -> None:
    tokenizer = read_tokenizer(byte_level, "f")
    assert tokens_of(tokenizer, "hello world") == ["hello", "Ġwor", "ld"]
    assert tokens_of(tokenizer, "é") == ["Ã", "©"]
    assert tokenizer.encode("hello").dtype == np.int32


def test_a_whole_word_ignores_the_merges_where_the_rule_says_so(byte_level) -> None:
    byte_level[KEY + "tokens"][-1] = "xyz"  # no merge makes it
    byte_level[KEY + "token_type"][-1] = 1
    assert tokens_of(read_tokenizer(byte_level, "f"), "xyz") == ["x", "y", "z"]
    byte_level[KEY + "pre"] = "llama-bpe"
    assert tokens_of(read_tokenizer(byte_level, "f"), "xyz") == ["xyz"]


def test_qwen2_text_is_composed_first(byte_level) -> None:
    byte_level[KEY + "pre"] = "qwen2"
    composed = read_tokenizer(byte_level, "f")
    assert list(composed.encode("e\u0301")) == list(composed.encode("\u00e9"))
    byte_level[KEY + "pre"] = "deepseek-r1-qwen"
    plain = read_tokenizer(byte_level, "f")
    assert list(plain.encode("e\u0301")) != list(plain.encode("\u00e9"))


def test_scores_merge_the_best_pair_and_the_leftmost_of_equals(scored) -> None:
    scored[KEY + "add_space_prefix"] = False
    tokenizer = read_tokenizer(scored, "f")
    assert tokens_of(tokenizer, "aaa") == ["aa", "a"]
    assert tokens_of(tokenizer, "abab") == ["abab"]
    assert tokens_of(tokenizer, "aab") == ["aa", "b"]  # "aa" scores above "ab"
    assert tokens_of(tokenizer, "a   b") == ["a", "▁▁", "▁", "b"]


def test_a_space_is_put_before_a_text_and_after_a_special_token(scored) -> None:
    tokenizer = read_tokenizer(scored, "f")
    assert tokens_of(tokenizer, "ab") == ["▁ab"]
    assert tokens_of(tokenizer, "ab</s>ab", parse_special=True) == ["▁ab", "</s>", "▁ab"]
    assert tokens_of(tokenizer, "") == []


def test_characters_without_a_token_become_bytes(scored) -> None:
    scored[KEY + "add_space_prefix"] = False
    assert tokens_of(read_tokenizer(scored, "f"), "é€") == ["é", "<0xE2>", "<0x82>", "<0xAC>"]


def test_or_the_unknown_token_where_there_are_no_bytes(scored) -> None:
    scored[KEY + "token_type"][3:259] = [5] * 256
    scored[KEY + "add_space_prefix"] = False
    assert tokens_of(read_tokenizer(scored, "f"), "a€") == ["a", "<unk>"]


def test_tokens_that_span_words_are_found(scored) -> None:
    """With such a token in the vocabulary, words cannot be looked up one by one."""
    scored[KEY + "tokens"] += ["b▁", "b▁a"]
    scored[KEY + "token_type"] += [1, 1]
    scored[KEY + "scores"] += [0.5, 0.4]
    assert tokens_of(read_tokenizer(scored, "f"), "b a") == ["▁", "b▁a"]


def test_long_runs_take_no_quadratic_time(scored) -> None:
    tokenizer = read_tokenizer(scored, "f")
    begin = time.perf_counter()
    tokenizer.encode("abc" * 30_000)
    assert time.perf_counter() - begin < 5


def test_bos_and_eos_are_added_where_the_file_says(byte_level, scored) -> None:
    assert list(read_tokenizer(byte_level, "f").encode("")) == [264]
    byte_level |= {KEY + "add_bos_token": False, KEY + "add_eos_token": True}
    assert list(read_tokenizer(byte_level, "f").encode("h")) == [LETTERS.index("h"), 265]
    assert list(read_tokenizer(scored, "f").encode("")) == [1]  # the default of this kind


def test_a_byte_level_file_that_names_no_bos_has_none(byte_level) -> None:
    for name in ("bos_token_id", "add_bos_token"):
        del byte_level[KEY + name]
    byte_level[KEY + "pre"] = "llama-bpe"  # which adds BOS by default
    tokenizer = read_tokenizer(byte_level, "f")
    assert (tokenizer.bos, tokenizer.add_bos, list(tokenizer.encode(""))) == (None, False, [])


def test_a_text_that_begins_with_bos_gets_another(byte_level) -> None:
    tokenizer = read_tokenizer(byte_level, "f")
    assert list(tokenizer.encode("<s>h", parse_special=True))[:2] == [264, 264]
    assert tokenizer.encode("<s>h", add_special=False, parse_special=True)[0] == 264


def test_control_tokens_are_parsed_only_when_asked(byte_level) -> None:
    tokenizer = read_tokenizer(byte_level, "f")
    assert tokens_of(tokenizer, "a<|im_end|>==") == [*"a<|im_end|>", "=="]
    assert tokens_of(tokenizer, "a<|im_end|>==", parse_special=True) == ["a", "<|im_end|>", "=="]


def test_no_plain_text_makes_a_control_token(byte_level, scored) -> None:
    """Even if the letters of one merge, or are one word that ignores the merges."""
    byte_level[KEY + "tokens"][264] = "bos"
    byte_level[KEY + "tokens"][266] = "bo"
    byte_level[KEY + "token_type"][266] = 1
    byte_level[KEY + "merges"] += ["b o", "bo s"]
    byte_level[KEY + "pre"] = "llama-bpe"
    assert tokens_of(read_tokenizer(byte_level, "f"), "bos") == ["bo", "s"]
    scored[KEY + "tokens"][1] = "bc"
    assert tokens_of(read_tokenizer(scored, "f"), "bc") == ["▁", "b", "c"]


def test_the_longest_special_token_wins(byte_level) -> None:
    byte_level[KEY + "tokens"][267] = "==="
    byte_level[KEY + "token_type"][267] = 4
    assert tokens_of(read_tokenizer(byte_level, "f"), "=====") == ["===", "=="]


def test_padding_tokens_count_and_say_nothing(byte_level) -> None:
    tokenizer = read_tokenizer(byte_level, "f")
    assert tokenizer.size == 268
    assert tokenizer.decode([267, LETTERS.index("h")]) == "h"


@FIXTURE_IS_READ_ONLY
@given(text=ANY_TEXT)
def test_byte_level_text_comes_back(byte_level, text: str) -> None:
    tokenizer = read_tokenizer(byte_level, "f")
    assert tokenizer.decode(tokenizer.encode(text)) == text


@FIXTURE_IS_READ_ONLY
@given(text=ANY_TEXT.filter(lambda text: "▁" not in text))  # which is how a space is written
def test_scored_text_comes_back(scored, text: str) -> None:
    tokenizer = read_tokenizer(scored, "f")
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_stream_gives_out_whole_characters(byte_level) -> None:
    stream = read_tokenizer(byte_level, "f").stream()
    ids = [LETTERS.index(LETTERS[byte]) for byte in "é".encode()]
    assert [stream.feed(i) for i in ids] == ["", "é"]
    assert stream.feed(ids[0]) == ""
    assert stream.finish() == "\ufffd"


def test_a_stream_of_byte_tokens_gives_out_whole_characters(scored) -> None:
    tokenizer = read_tokenizer(scored, "f")
    stream = tokenizer.stream()
    assert [stream.feed(3 + byte) for byte in "日".encode()] == ["", "", "日"]
    assert stream.feed(tokenizer.encode("€", add_special=False)[-1]) == "\ufffd"


def test_a_stream_that_continues_keeps_its_leading_space(scored) -> None:
    tokenizer = read_tokenizer(scored, "f")
    ids = tokenizer.encode("ab")
    assert tokenizer.decode(ids) == "ab"
    stream = tokenizer.stream()
    assert "".join(stream.feed(int(i)) for i in ids) == " ab"


def test_what_ends_a_generation_is_found_by_key_and_by_text(byte_level) -> None:
    assert read_tokenizer(byte_level, "f").end_of_generation == {265}
    byte_level[KEY + "eos_token_id"] = 264
    byte_level[KEY + "eot_token_id"] = 267
    assert read_tokenizer(byte_level, "f").end_of_generation == {264, 265, 267}


def test_a_stop_that_the_file_calls_normal_is_a_control_token(byte_level) -> None:
    types = byte_level[KEY + "token_type"]
    types[265] = 1
    tokenizer = read_tokenizer(byte_level, "f")
    assert tokens_of(tokenizer, "a<|im_end|>", parse_special=True) == ["a", "<|im_end|>"]
    assert tokens_of(tokenizer, "<|im_end|>") == [*"<|im_end|>"]
    assert types[265] == 1  # the caller's list is left alone


def test_a_part_of_an_answer_does_not_end_it(byte_level) -> None:
    byte_level[KEY + "tokens"] += ["<|end|>", "<|return|>", "<|call|>"]
    byte_level[KEY + "token_type"] += [3] * 3
    assert read_tokenizer(byte_level, "f").end_of_generation == {265, 269, 270}


def test_the_chat_template_is_kept_verbatim(byte_level) -> None:
    assert read_tokenizer(byte_level, "f").chat_template is None
    broken = "{% if %}"  # it is not looked at before it is used
    tokenizer = read_tokenizer(byte_level | {"tokenizer.chat_template": broken}, "f")
    assert tokenizer.chat_template == broken


def test_half_a_surrogate_pair_is_refused(byte_level) -> None:
    with pytest.raises(TextError, match=r"character 2 of 3 is '\\udcff'"):
        read_tokenizer(byte_level, "f").encode("ab\udcff")


def test_an_unknown_kind_is_refused(byte_level) -> None:
    with pytest.raises(UnsupportedError, match=r"ggml\.model is 'bert'") as error:
        read_tokenizer(byte_level | {KEY + "model": "bert"}, "f")
    assert "gpt2" in error.value.hint


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("model", None, "there is no tokenizer.ggml.model"),
        ("tokens", None, "there is no tokenizer.ggml.tokens"),
        ("tokens", [], "tokens is empty"),
        ("tokens", "abc", "not a list of str"),
        ("tokens", [1, 2], "not a list of str"),
        ("tokens", ["a", "b", "a"], "tokens 0 and 2 are both 'a'"),
        ("token_type", [1], "1 entries; there are 268 tokens"),
        ("token_type", ["x"] * 268, "not a list of int"),
        ("merges", None, "there is no tokenizer.ggml.merges"),
        ("bos_token_id", 268, "bos_token_id is 268; there are 268 tokens"),
        ("eos_token_id", -1, "eos_token_id is -1; there are 268 tokens"),
        ("eos_token_id", "x", "eos_token_id is of type str; int is needed"),
        ("bos_token_id", None, "add_bos_token is true, but there is no"),
        ("add_eos_token", 1, "add_eos_token is of type int; bool is needed"),
        ("pre", 3, "pre is of type int; str is needed"),
    ],
)
def test_bad_keys_of_a_byte_level_file_are_named(byte_level, key, value, message) -> None:
    if value is None:
        del byte_level[KEY + key]
    else:
        byte_level[KEY + key] = value
    if key == "tokens":
        byte_level.pop(KEY + "token_type")
    with pytest.raises(GGUFError, match=message) as error:
        read_tokenizer(byte_level, "f.gguf")
    assert str(error.value).startswith("f.gguf: ")


@pytest.mark.parametrize(
    ("merges", "message"),
    [
        (["h e", "hello"], "merge 1 of 2 is 'hello', which is not two tokens"),
        (["h "], "merge 0 of 1 is 'h '"),
        ([" h"], "merge 0 of 1 is ' h'"),
        (["h €"], "merge 0 of 1 is 'h €'"),
        (["h h", "h h"], "merge 0 of 2 is 'h h'"),
    ],
)
def test_bad_merges_are_named_when_all_are_wanted(byte_level, merges, message) -> None:
    tokenizer = read_tokenizer(byte_level | {KEY + "merges": merges}, "f.gguf")
    with pytest.raises(GGUFError, match=f"^f.gguf: {message}"):
        tokenizer.encode("o" * (SHORT + 1))


def test_a_bad_merge_is_named_when_a_short_text_wants_it(byte_level) -> None:
    tokenizer = read_tokenizer(byte_level | {KEY + "merges": ["h e", "h h"]}, "f.gguf")
    assert tokens_of(tokenizer, "he") == ["he"]
    with pytest.raises(GGUFError, match=r"^f.gguf: merge 1 of 2 is 'h h', which is not two"):
        tokenizer.encode("hh")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("scores", None, "there is no tokenizer.ggml.scores"),
        ("scores", [0.0], "1 entries; there are 270 tokens"),
        ("scores", [float("nan")] * 270, "scores holds NaN"),
        ("token_type", [6] * 270, "token 0 is marked as a byte, but is '<unk>'"),
    ],
)
def test_bad_keys_of_a_scored_file_are_named(scored, key, value, message) -> None:
    scored[KEY + key] = value
    if value is None:
        del scored[KEY + key]
    with pytest.raises(GGUFError, match=message):
        read_tokenizer(scored, "f.gguf")


@FIXTURE_IS_READ_ONLY
@given(data=st.data())
def test_random_keys_give_a_tokenizer_or_an_error_of_ours(byte_level, scored, data) -> None:
    keys = dict(data.draw(st.sampled_from([byte_level, scored])))
    value = st.one_of(
        st.none(), st.booleans(), st.integers(-(2**64), 2**64), st.floats(), st.text(max_size=3),
        st.lists(st.text(max_size=3), max_size=5), st.lists(st.integers(), max_size=5),
    )  # fmt: skip
    for key in data.draw(st.lists(st.sampled_from(sorted(keys)), min_size=1, max_size=3)):
        keys[key] = data.draw(value)
    try:
        tokenizer = read_tokenizer(keys, "f")
    except EdgequantError:
        return
    tokenizer.decode(tokenizer.encode("ab cd<s>"))
