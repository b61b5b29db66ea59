"""From a Hugging Face directory to keys: what is written, and what is refused before any weight."""

import contextlib
import json
import shutil
import struct
from pathlib import Path

import pytest

from edgequant.errors import CheckpointError, EdgequantError, UnsupportedError
from edgequant.tokenizer.bpe import LETTERS
from edgequant.tokenizer.from_gguf import read_tokenizer
from edgequant.tokenizer.split import LLAMA3, QWEN2, TEKKEN
from edgequant.tokenizer.to_gguf import tokenizer_keys

KEY = "tokenizer.ggml."


def split_step(pattern: str, behavior: str = "Isolated", invert: bool = False) -> dict:
    return {
        "type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert
    }  # fmt: skip


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
WORDS = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
DIGITS = {"type": "Digits", "individual_digits": True}


def sequence(*steps: dict) -> dict:
    return {"type": "Sequence", "pretokenizers": list(steps)}


def template(*tokens: str) -> dict:
    single = [
        {"Sequence": {"id": "A"}} if t == "A" else {"SpecialToken": {"id": t}} for t in tokens
    ]
    return {"type": "TemplateProcessing", "single": single, "pair": []}


class Directory:
    """A checkpoint's tokenizer files, changed by the tests before they are written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        merges = [["h", "e"], ["he", "l"]]
        vocab = {token: i for i, token in enumerate([*LETTERS, "he", "hel"])}
        self.tokenizer: dict = {
            "added_tokens": [
                {"id": 258, "content": "<s>", "special": True},
                {"id": 259, "content": "</s>", "special": True},
            ],
            "normalizer": None,
            "pre_tokenizer": sequence(split_step(LLAMA3), BYTES),
            "post_processor": template("<s>", "A"),
            "model": {"type": "BPE", "ignore_merges": True, "vocab": vocab, "merges": merges},
        }
        self.config: dict = {"bos_token": "<s>", "eos_token": {"content": "</s>"}}

    def write(self, **files: object) -> Path:
        files = {"tokenizer": self.tokenizer, "tokenizer_config": self.config, **files}
        for name, content in files.items():
            (self.path / f"{name}.json").write_text(json.dumps(content), "utf-8")
        return self.path

    def scored(self) -> None:
        """Make it SentencePiece-style, with merges and no scores."""
        tokens = ["<unk>", "<s>", "</s>", "<0x0A>", "▁", "a", "b", "ab", "▁ab"]
        self.tokenizer["added_tokens"] = [{"id": 0, "content": "<unk>", "special": True}]
        self.tokenizer["normalizer"] = {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ],
        }
        self.tokenizer["pre_tokenizer"] = None
        self.tokenizer["model"] = {
            "type": "BPE", "byte_fallback": True, "unk_token": "<unk>",
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": ["a b", "▁ ab"],
        }  # fmt: skip


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path)


def test_the_bundled_model(books_6m: Path) -> None:
    keys = tokenizer_keys(books_6m, 4096)
    assert keys[KEY + "pre"] == "llama-bpe"
    assert keys[KEY + "model"] == "gpt2"
    assert (keys[KEY + "bos_token_id"], keys[KEY + "eos_token_id"]) == (4094, 4095)
    assert keys[KEY + "add_bos_token"] is True
    assert len(keys[KEY + "merges"]) == 3838
    tokenizer = read_tokenizer(keys, "books-6m")
    assert tokenizer.decode(tokenizer.encode("Once upon a time")) == "Once upon a time"


def test_a_byte_level_tokenizer(directory: Directory) -> None:
    keys = tokenizer_keys(directory.write(), 260)
    assert keys == {
        KEY + "model": "gpt2",
        KEY + "pre": "llama-bpe",
        KEY + "tokens": [*LETTERS, "he", "hel", "<s>", "</s>"],
        KEY + "token_type": [1] * 258 + [3, 3],
        KEY + "merges": ["h e", "he l"],
        KEY + "bos_token_id": 258,
        KEY + "eos_token_id": 259,
        KEY + "add_bos_token": True,
    }


@pytest.mark.parametrize(
    ("steps", "ignore_merges", "normalizer", "pre"),
    [
        ([split_step(LLAMA3), BYTES], True, None, "llama-bpe"),
        ([split_step(LLAMA3), BYTES], False, None, "smaug-bpe"),
        ([split_step(LLAMA3, "Removed", True), BYTES], False, None, "smaug-bpe"),
        ([split_step(QWEN2), BYTES], False, {"type": "NFC"}, "qwen2"),
        ([split_step(QWEN2), BYTES], False, None, "deepseek-r1-qwen"),
        ([split_step(TEKKEN), BYTES], True, None, "tekken"),
        ([WORDS], False, None, "gpt-2"),
        ([DIGITS, WORDS], False, {"type": "Sequence", "normalizers": []}, "smollm"),
    ],
)
def test_the_way_of_splitting_is_recognised(
    directory: Directory, steps, ignore_merges, normalizer, pre
) -> None:
    directory.tokenizer["pre_tokenizer"] = sequence(*steps)
    directory.tokenizer["model"]["ignore_merges"] = ignore_merges
    directory.tokenizer["normalizer"] = normalizer
    assert tokenizer_keys(directory.write(), 260)[KEY + "pre"] == pre


def test_merges_written_as_strings(directory: Directory) -> None:
    directory.tokenizer["model"]["merges"] = ["h e", "he l"]
    assert tokenizer_keys(directory.write(), 260)[KEY + "merges"] == ["h e", "he l"]


def test_more_rows_than_tokens_are_padded(directory: Directory) -> None:
    keys = tokenizer_keys(directory.write(), 263)
    assert keys[KEY + "tokens"][260:] == ["[PAD260]", "[PAD261]", "[PAD262]"]
    assert keys[KEY + "token_type"][260:] == [5, 5, 5]


def test_holes_between_added_tokens_are_padded(directory: Directory) -> None:
    directory.tokenizer["added_tokens"][1]["id"] = 262
    keys = tokenizer_keys(directory.write(), 263)
    assert keys[KEY + "tokens"][258:] == ["<s>", "[PAD259]", "[PAD260]", "[PAD261]", "</s>"]
    assert keys[KEY + "eos_token_id"] == 262


def test_added_tokens_may_redefine_base_ids(directory: Directory) -> None:
    directory.config["added_tokens_decoder"] = {
        "0": {"content": LETTERS[0], "special": False},
        "256": {"content": "<tool>", "special": False},
        "257": {"content": "<|odd|>", "special": False},
    }
    keys = tokenizer_keys(directory.write(added_tokens={"<s>": 258}), 260)
    assert keys[KEY + "tokens"][256:] == ["<tool>", "<|odd|>", "<s>", "</s>"]
    assert keys[KEY + "token_type"][:1] == [4]
    assert keys[KEY + "token_type"][256:] == [4, 3, 4, 3]


def test_special_tokens_come_from_whichever_file_knows_them(directory: Directory) -> None:
    directory.config = {}
    path = directory.write(
        special_tokens_map={"bos_token": "<s>"},
        generation_config={"eos_token_id": 259},
        config={"pad_token_id": 3, "unk_token_id": -1, "eos_token_id": [259, 3]},
    )
    keys = tokenizer_keys(path, 260)
    assert keys[KEY + "bos_token_id"] == 258
    assert keys[KEY + "eos_token_id"] == 259
    assert keys[KEY + "padding_token_id"] == 3
    assert KEY + "unknown_token_id" not in keys


@pytest.mark.parametrize(
    ("processor", "config", "adds"),
    [
        (template("<s>", "A"), False, {"add_bos_token": True}),  # the post-processor knows best
        (template("<s>", "A", "</s>"), None, {"add_bos_token": True, "add_eos_token": True}),
        ({"type": "ByteLevel"}, True, {"add_bos_token": False, "add_eos_token": False}),
        (None, True, {"add_bos_token": True}),
        (None, None, {}),
    ],
)
def test_whether_bos_is_added(directory: Directory, processor, config, adds) -> None:
    directory.tokenizer["post_processor"] = processor
    directory.config["add_bos_token"] = config
    keys = tokenizer_keys(directory.write(), 260)
    found = {key.removeprefix(KEY): value for key, value in keys.items() if "add_" in key}
    assert found == adds


def test_a_score_comes_from_the_rank_of_a_merge(directory: Directory) -> None:
    directory.scored()
    directory.tokenizer["added_tokens"].append({"id": 9, "content": "x▁y", "special": False})
    keys = tokenizer_keys(directory.write(), 10)
    assert keys[KEY + "model"] == "llama"
    assert keys[KEY + "token_type"] == [2, 3, 3, 6, 1, 1, 1, 1, 1, 4]
    assert keys[KEY + "scores"][7:] == [0.0, -1.0, -1000.0]
    assert keys[KEY + "tokens"][9] == "x y"
    assert keys[KEY + "add_space_prefix"] is True
    assert KEY + "merges" not in keys
    tokenizer = read_tokenizer(keys, "f")
    assert list(tokenizer.encode("ab", add_special=False)) == [8]


@pytest.mark.parametrize(
    ("normalizer", "pre_tokenizer", "config", "prefix"),
    [
        ({"type": "Replace"}, None, None, False),
        (None, {"type": "Metaspace", "prepend_scheme": "first"}, None, True),
        (None, {"type": "Metaspace", "prepend_scheme": "never"}, None, False),
        ({"type": "Prepend", "prepend": "▁"}, None, False, False),
    ],
)
def test_a_leading_space(directory: Directory, normalizer, pre_tokenizer, config, prefix) -> None:
    directory.scored()
    directory.tokenizer |= {"normalizer": normalizer, "pre_tokenizer": pre_tokenizer}
    directory.config["add_prefix_space"] = config
    assert tokenizer_keys(directory.write(), 9)[KEY + "add_space_prefix"] is prefix


def test_chat_templates(directory: Directory) -> None:
    path = directory.write()
    (path / "chat_template.jinja").write_text("{{ from_file }}\n", "utf-8")
    assert tokenizer_keys(path, 260)["tokenizer.chat_template"] == "{{ from_file }}\n"
    directory.config["chat_template"] = "{{ broken"
    assert tokenizer_keys(directory.write(), 260)["tokenizer.chat_template"] == "{{ broken"
    directory.config["chat_template"] = [
        {"name": "default", "template": "a"},
        {"name": "tool_use", "template": "b"},
    ]
    keys = tokenizer_keys(directory.write(), 260)
    assert keys["tokenizer.chat_template"] == "a"
    assert keys["tokenizer.chat_template.tool_use"] == "b"
    assert keys["tokenizer.chat_templates"] == ["tool_use"]


def sentencepiece(kind: int = 2, prefix: int = 1) -> bytes:
    """A tokenizer.model of our own making: the protobuf bytes, written by hand."""

    def message(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2, len(content)]) + content

    def piece(text: str, score: float, kind: int) -> bytes:
        return message(
            1, message(1, text.encode()) + b"\x15" + struct.pack("<f", score) + bytes([0x18, kind])
        )

    pieces = [("<unk>", 0, 2), ("<s>", 0, 3), ("</s>", 0, 3), ("<0x41>", 0, 6), ("▁", -1, 1)]
    pieces += [("a", -2, 1), ("▁a", -0.5, 1), ("<user>", 0, 4)]
    trainer, normalizer = bytes([0x18, kind]), bytes([0x18, prefix])
    return b"".join(piece(*p) for p in pieces) + message(2, trainer) + message(3, normalizer)


def test_a_sentencepiece_model_comes_first(directory: Directory) -> None:
    path = directory.write()
    (path / "tokenizer.json").unlink()
    (path / "tokenizer.model").write_bytes(sentencepiece(prefix=0))
    (path / "added_tokens.json").write_text('{"<pad>": 9, "<tool>": 8}')
    keys = tokenizer_keys(path, 11)
    tokens = ["<unk>", "<s>", "</s>", "<0x41>", "▁", "a", "▁a", "<user>", "<tool>", "<pad>"]
    assert keys[KEY + "tokens"] == [*tokens, "[PAD10]"]
    assert keys[KEY + "token_type"] == [2, 3, 3, 6, 1, 1, 1, 1, 4, 3, 5]
    assert keys[KEY + "scores"][4:8] == [-1.0, -2.0, -0.5, 0.0]
    assert (keys[KEY + "bos_token_id"], keys[KEY + "eos_token_id"]) == (1, 2)
    assert keys[KEY + "add_space_prefix"] is False


def test_a_tokenizer_model_of_another_kind_gives_way(directory: Directory) -> None:
    path = directory.write()
    (path / "tokenizer.model").write_text("IQ== 0\nIg== 1\n")
    assert tokenizer_keys(path, 260)[KEY + "model"] == "gpt2"
    (path / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"tokenizer.model: .*SentencePiece model"):
        tokenizer_keys(path, 260)


def test_every_cut_of_a_sentencepiece_model_is_refused_or_shorter(directory: Directory) -> None:
    whole = sentencepiece()
    for length in range(len(whole)):
        (directory.path / "tokenizer.model").write_bytes(whole[:length])
        with pytest.raises((CheckpointError, UnsupportedError)):
            tokenizer_keys(directory.path, 8 if length < len(whole) - 4 else 1)


def test_a_unigram_model_is_refused(directory: Directory) -> None:
    (directory.path / "tokenizer.model").write_bytes(sentencepiece(kind=1))
    with pytest.raises(UnsupportedError, match="of the kind unigram; only BPE is known"):
        tokenizer_keys(directory.path, 8)


def test_more_tokens_than_rows_are_refused(directory: Directory) -> None:
    message = r"token 259 is '</s>', but the embedding has 259 rows"
    with pytest.raises(CheckpointError, match=message):
        tokenizer_keys(directory.write(), 259)


def test_a_negative_id_is_refused(directory: Directory) -> None:
    directory.tokenizer["added_tokens"][0]["id"] = -1
    with pytest.raises(CheckpointError, match="token -1 is '<s>'"):
        tokenizer_keys(directory.write(), 260)


def test_a_special_id_without_a_row_is_refused(directory: Directory) -> None:
    path = directory.write(config={"pad_token_id": 260})
    with pytest.raises(CheckpointError, match="pad_token_id is 260; the embedding has 260 rows"):
        tokenizer_keys(path, 260)


def test_one_text_at_two_ids_is_refused(directory: Directory) -> None:
    directory.tokenizer["added_tokens"][1]["content"] = "he"
    with pytest.raises(CheckpointError, match="tokens 256 and 259 are both 'he'"):
        tokenizer_keys(directory.write(), 260)


def test_no_tokenizer_at_all(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"neither tokenizer.json nor tokenizer.model"):
        tokenizer_keys(tmp_path, 8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pre_tokenizer": sequence(split_step("[a-z]+"), BYTES)}, r"split by \[a-z\]\+ and whole"),
        ({"pre_tokenizer": split_step(LLAMA3)}, "not into bytes"),
        ({"pre_tokenizer": None}, "split by nothing"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, r"split by Whitespace \(\)"),
        ({"pre_tokenizer": split_step("x", "MergedWithNext")}, "behavior MergedWithNext"),
        ({"pre_tokenizer": {"type": "ByteLevel"}}, r"split by ByteLevel \(\)"),
        ({"normalizer": {"type": "Lowercase"}}, "normalized by Lowercase"),
        ({"model": {"type": "Unigram"}}, "the model is Unigram"),
        ({"model": {"type": "BPE", "end_of_word_suffix": "</w>"}}, "BPE with end_of_word_suffix"),
    ],
)
def test_what_no_key_can_say_is_refused(directory: Directory, change, message) -> None:
    directory.tokenizer |= change
    with pytest.raises(UnsupportedError, match=message):
        tokenizer_keys(directory.write(), 260)


@pytest.mark.parametrize(
    ("part", "message"),
    [("normalizer", "normalized by NFKC"), ("pre_tokenizer", "split by NFKC")],
)
def test_what_no_key_can_say_of_a_scored_one(directory: Directory, part, message) -> None:
    directory.scored()
    directory.tokenizer[part] = {"type": "NFKC"}
    with pytest.raises(UnsupportedError, match=message):
        tokenizer_keys(directory.write(), 9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": None}, "model: is of type NoneType; dict is needed"),
        ({"model": {"vocab": {"a": "b"}, "merges": []}}, "id of 'a': is of type str"),
        ({"model": {"vocab": {}, "merges": ["abc"]}}, "merge 0 is 'abc', not two tokens"),
        ({"model": {"vocab": {}, "merges": [[1, 2]]}}, r"merge 0 is \[1, 2\], not two tokens"),
        ({"added_tokens": [{"id": 1}]}, "content of added token 1: is of type NoneType"),
        ({"pre_tokenizer": {"type": 3}}, "type of pretokenizers: is of type int"),
    ],
)
def test_a_broken_tokenizer_json_is_named(directory: Directory, change, message) -> None:
    directory.tokenizer |= change
    with pytest.raises(CheckpointError, match=message):
        tokenizer_keys(directory.write(), 260)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", b"{", "not JSON"),
        ("tokenizer.json", b"[" * 100_000, "not JSON"),
        ("tokenizer.json", b"[]", "is of type list; dict is needed"),
        ("tokenizer_config.json", b"\xff", "cannot be read"),
        ("tokenizer_config.json", b'{"added_tokens_decoder": {"x": {}}}', "the entry 'x': {}"),
        ("tokenizer_config.json", b'{"chat_template": 3}', "chat_template: is of type int"),
        ("chat_template.jinja", b"\xff", "chat_template.jinja: cannot be read"),
        ("added_tokens.json", b'{"<x>": "y"}', "id of '<x>': is of type str"),
    ],
)
def test_broken_files_are_named(directory: Directory, name, content, message) -> None:
    path = directory.write()
    (path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        tokenizer_keys(path, 260)


def test_half_a_surrogate_pair_is_refused(directory: Directory) -> None:
    directory.tokenizer["added_tokens"][0]["content"] = "<\ud800>"
    with pytest.raises(CheckpointError, match=r"ggml.tokens would hold '<\\ud800>'"):
        tokenizer_keys(directory.write(), 260)


def test_random_changes_give_keys_or_an_error_of_ours(tmp_path: Path, rng) -> None:
    """A value anywhere in the files is replaced by one of another kind."""
    odd = [
        None,
        True,
        -1,
        10**30,
        0.5,
        "",
        "x",
        [],
        [[]],
        ["x"],
        {},
        {"type": "Sequence"},
        "\udfff",
    ]

    def change(node: object) -> None:
        while isinstance(node, dict | list) and node:
            keys = list(node) if isinstance(node, dict) else range(len(node))
            key = keys[rng.integers(len(keys))]
            if not isinstance(node[key], dict | list) or rng.random() < 0.3:
                node[key] = odd[rng.integers(len(odd))]
                return
            node = node[key]

    for number in range(600):
        fresh = Directory(tmp_path)
        if number % 2:
            fresh.scored()
        fresh.config["added_tokens_decoder"] = {"257": {"content": "<x>", "special": True}}
        change(fresh.tokenizer if rng.random() < 0.8 else fresh.config)
        with contextlib.suppress(EdgequantError):
            read_tokenizer(tokenizer_keys(fresh.write(), 260), "f").encode("hello <x>")


def test_a_copy_of_the_bundled_model_without_its_config_still_reads(
    books_6m: Path, tmp_path: Path
) -> None:
    shutil.copy(books_6m / "tokenizer.json", tmp_path)
    shutil.copy(books_6m / "config.json", tmp_path)
    keys = tokenizer_keys(tmp_path, 4096)
    assert (keys[KEY + "bos_token_id"], keys[KEY + "add_bos_token"]) == (4094, True)
