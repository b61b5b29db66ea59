"""Tokenizers against llama.cpp's vectors, llama.cpp itself, and Hugging Face's library."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from edgequant.errors import UnsupportedError
from edgequant.gguf.reader import open_file
from edgequant.gguf.writer import open_output
from edgequant.tokenizer.bpe import LETTERS
from edgequant.tokenizer.from_gguf import Tokenizer, read_tokenizer
from edgequant.tokenizer.split import SPLITS
from edgequant.tokenizer.to_gguf import tokenizer_keys

pytestmark = pytest.mark.oracle
ROOT = Path(__file__).parents[2]
VOCABS = ROOT / ".cache" / "vocabs"
KEY = "tokenizer.ggml."
BETWEEN = "\n__ggml_vocab_test__\n"
COVERED = (
    "command-r", "deepseek-coder", "deepseek-llm", "falcon", "gpt-2", "llama-bpe", "llama-spm",
    "mpt", "phi-3", "qwen2", "qwen35", "refact", "starcoder",
)  # fmt: skip
TEXTS = ("prose", "code", "dialogue", "languages")
CODE = 'def f(x):\n\treturn {"a": [1, 22, 333, 4444]}  # I\'ll\r\n\n\n    for(;;)  i+=1;\x00\x7f'
# Engines know different versions of Unicode: letters of old scripts, marks, symbols, spaces, and no
# code point that was assigned lately.
SOME_SCRIPTS = st.characters(max_codepoint=0x052F, exclude_categories=["Cs", "Cn"])
SYMBOLS = st.sampled_from("\u2003\u3000\u200b日本語한국어กำעברעربي🦙🏳️‍🌈\u0301 '\n\r\t.,12345")
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
TEXT = st.text(SOME_SCRIPTS | SYMBOLS, max_size=60)
CHECKED = settings(max_examples=150, deadline=None)


def same(ours: Tokenizer, theirs: tokenizers.Tokenizer, text: str) -> None:
    assert list(ours.encode(text, parse_special=True)) == theirs.encode(text).ids


@pytest.fixture(scope="module")
def books(books_6m: Path) -> dict[str, object]:
    return tokenizer_keys(books_6m, 4096)


@pytest.fixture(scope="module")
def ours(books) -> Tokenizer:
    return read_tokenizer(books, "books-6m")


@pytest.fixture(scope="module")
def theirs(books_6m: Path) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(books_6m / "tokenizer.json"))


# llama.cpp's vectors


@pytest.mark.parametrize("name", COVERED)
def test_llama_cpp_vectors(name: str) -> None:
    path = VOCABS / f"ggml-vocab-{name}.gguf"
    if not path.exists():
        pytest.skip("tests/parity/fetch_vocabs.py has not been run")
    with open_file(path) as file:
        tokenizer = read_tokenizer(file.values(), path.name)
    *texts, rest = Path(f"{path}.inp").read_bytes().decode().split(BETWEEN)
    assert rest == ""
    lines = Path(f"{path}.out").read_text().splitlines()
    assert len(texts) == len(lines) > 40
    for text, line in zip(texts, lines, strict=True):
        assert list(tokenizer.encode(text, add_special=False)) == [int(i) for i in line.split()]


@pytest.mark.parametrize("name", ["bert-bge", "gemma-4", "nomic-bert-moe"])
def test_kinds_that_are_not_known_are_refused(name: str) -> None:
    path = VOCABS / f"ggml-vocab-{name}.gguf"
    if not path.exists():
        pytest.skip("tests/parity/fetch_vocabs.py has not been run")
    with open_file(path) as file, pytest.raises(UnsupportedError, match="kind of vocabulary"):
        read_tokenizer(file.values(), path.name)


# llama.cpp itself


class LlamaVocabulary:
    """A vocabulary in llama.cpp."""

    def __init__(self, keys: dict[str, object], path: Path) -> None:
        import llama_cpp

        sizes = {"context_length": 8, "embedding_length": 8, "block_count": 1,
                 "feed_forward_length": 8, "attention.head_count": 1,
                 "attention.layer_norm_rms_epsilon": 1e-5}  # fmt: skip
        sizes = {f"llama.{name}": value for name, value in sizes.items()}
        with open_output(path, {"general.architecture": "llama", **sizes, **keys}, []):
            pass
        self._model = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        return self._model.tokenize(text.encode(), add_bos=add_special, special=parse_special)

    def ends(self, size: int) -> set[int]:
        import llama_cpp

        vocab = llama_cpp.llama_model_get_vocab(self._model.model)
        return {i for i in range(size) if llama_cpp.llama_vocab_is_eog(vocab, i)}


def agree(keys: dict[str, object], path: Path, texts: Iterator[str] | list[str]) -> None:
    ours, theirs = read_tokenizer(keys, "f"), LlamaVocabulary(keys, path)
    assert ours.end_of_generation == theirs.ends(ours.size)
    for text in texts:
        for options in ({"add_special": True, "parse_special": True},
                        {"add_special": False, "parse_special": False}):  # fmt: skip
            assert list(ours.encode(text, **options)) == theirs.encode(text, **options), text


@pytest.fixture(scope="module")
def llama_books(books, tmp_path_factory) -> LlamaVocabulary:
    return LlamaVocabulary(books, tmp_path_factory.mktemp("books") / "books.gguf")


@CHECKED
@given(text=TEXT)
def test_random_text_as_llama_cpp_has_it(ours, llama_books, text: str) -> None:
    expected = llama_books.encode(text, add_special=True, parse_special=False)
    assert list(ours.encode(text)) == expected


@pytest.mark.parametrize("split", SPLITS, ids=lambda split: split.names[0])
def test_every_way_of_splitting_is_llama_cpps(split, books, tmp_path: Path, rng) -> None:
    text = (ROOT / "calibration" / "languages.txt").read_text("utf-8")[:4000]
    letters = list(" \n\t'sSabXYé1234567,.!$+<|日本語가ก\u3000")
    texts = ["".join(rng.choice(letters, 30)) for _ in range(200)]
    keys = books | {KEY + "pre": split.names[0]}
    agree(keys, tmp_path / "f.gguf", [CODE, text, "a<|end_of_text|>b", *texts])


def test_scores_with_ties_are_llama_cpps(tmp_path: Path, rng) -> None:
    letters = list("ab▁é")
    made = {"".join(rng.choice(letters, rng.integers(2, 6))) for _ in range(120)}
    made = [*letters, *sorted(made)]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *made]
    keys = {
        KEY + "model": "llama",
        KEY + "tokens": tokens,
        KEY + "token_type": [2, 3, 3, *[6] * 256, *[1] * len(made)],
        KEY + "scores": [0.0] * 259 + [-float(score) for score in rng.integers(0, 9, len(made))],
    }
    letters = list("aab  é🦙\n")
    texts = ["".join(rng.choice(letters, rng.integers(0, 40))) for _ in range(500)]
    for prefix in (True, False):
        path = tmp_path / f"{prefix}.gguf"
        agree(keys | {KEY + "add_space_prefix": prefix}, path, [*texts, "a</s>b <s> a"])


def test_special_tokens_are_llama_cpps(tmp_path: Path) -> None:
    tokens = [*LETTERS, "<s>", "</s>", "<|im_end|>", "==", "===", "<|file_sep|>", "[PAD262]"]
    keys = {
        KEY + "model": "gpt2", KEY + "pre": "gpt-2", KEY + "tokens": tokens,
        KEY + "token_type": [1] * 256 + [3, 3, 3, 4, 4, 3, 5],
        KEY + "merges": ["a b"], KEY + "bos_token_id": 256, KEY + "eos_token_id": 257,
        KEY + "add_bos_token": True, KEY + "add_eos_token": True,
    }  # fmt: skip
    keys[KEY + "tokens"].append("ab")
    keys[KEY + "token_type"].append(1)
    texts = ["<s>", "a<|im_end|>b", "=====", "[PAD262]", "ab</s>", "", "x ==<|file_sep|>"]
    agree(keys, tmp_path / "f.gguf", texts)
    keys[KEY + "token_type"][257:259] = [1, 1]  # as some files have it
    agree(keys, tmp_path / "g.gguf", texts)


# Hugging Face


@CHECKED
@given(text=TEXT | ANY_TEXT)
def test_random_text_as_hugging_face_has_it(ours, theirs, text: str) -> None:
    same(ours, theirs, text)
    assert ours.decode(ours.encode(text)) == text


@pytest.mark.parametrize("name", TEXTS)
def test_whole_texts_as_hugging_face_has_them(ours, theirs, name: str) -> None:
    same(ours, theirs, (ROOT / f"calibration/{name}.txt").read_text("utf-8"))


def sentencepiece_style(path: Path) -> None:
    """Write a tokenizer.json as Llama 2's: byte fallback, all splits of a token as merges."""
    model = tokenizers.models.BPE(unk_token="<unk>")
    learner = tokenizers.Tokenizer(model)
    learner.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    text = (ROOT / "calibration" / "prose.txt").read_text("utf-8")
    learner.train_from_iterator(
        text.splitlines(), tokenizers.trainers.BpeTrainer(vocab_size=800, show_progress=False)
    )
    learnt = json.loads(learner.to_str())["model"]
    pieces = sorted(learnt["vocab"], key=learnt["vocab"].get)
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    vocab = {token: i for i, token in enumerate(tokens)}
    merges = []
    for left, right in learnt["merges"]:
        token = left + right
        cuts = [(token[:i], token[i:]) for i in range(1, len(token))]
        merges += [[a, b] for a, b in cuts if a in vocab and b in vocab]
    space = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
               "special": True}  # fmt: skip
    content = {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": tokens[i], **special} for i in range(3)],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [{"type": "Prepend", "prepend": "▁"}, space],
        },
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "<s>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
        },
        "decoder": None,
        "model": {
            "type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
            "vocab": vocab, "merges": merges,
        },
    }  # fmt: skip
    path.write_text(json.dumps(content), "utf-8")


def test_a_sentencepiece_style_tokenizer_as_hugging_face_has_it(tmp_path: Path) -> None:
    sentencepiece_style(tmp_path / "tokenizer.json")
    (tmp_path / "config.json").write_text('{"bos_token_id": 1, "eos_token_id": 2}')
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    keys = tokenizer_keys(tmp_path, theirs.get_vocab_size())
    ours = read_tokenizer(keys, "f")
    for name in TEXTS:
        for line in (ROOT / f"calibration/{name}.txt").read_text("utf-8").split("\n")[:400]:
            if line:  # of an empty text llama.cpp makes nothing, Hugging Face a lone space
                same(ours, theirs, line)
    agree(keys, tmp_path / "f.gguf", ["Hello  world", CODE, "日本語 🦙"])


@pytest.mark.shared
@pytest.mark.parametrize("name", ["books-54m", "books-6m"])
def test_books_and_declarations(shared: Path, name: str) -> None:
    path = shared / "models" / name
    rows = json.loads((path / "config.json").read_text())["vocab_size"]
    ours = read_tokenizer(tokenizer_keys(path, rows), name)
    theirs = tokenizers.Tokenizer.from_file(str(path / "tokenizer.json"))
    for file in ("udhr/eng.txt", "udhr/fra.txt", "udhr/jpn.txt", "books-heldout.txt"):
        same(ours, theirs, (shared / "data" / file).read_text("utf-8"))


@pytest.mark.shared
@pytest.mark.parametrize("name", ["books-54m", "books-6m"])
def test_ids_of_llama_tokenize(shared: Path, name: str) -> None:
    path = shared / "models" / name
    rows = json.loads((path / "config.json").read_text())["vocab_size"]
    ours = read_tokenizer(tokenizer_keys(path, rows), name)
    text = (shared / "data" / "books-heldout.txt").read_bytes()[:20000].decode()
    assert list(ours.encode(text)) == json.loads((shared / "oracle/tokens.json").read_text())[name]
