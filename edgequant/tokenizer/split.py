r"""How byte-level BPE cuts a text into words before merging: what `tokenizer.ggml.pre` names.

A rule is a list of regular expressions, applied in turn: each cuts the pieces that the one before
left, and what it does not match stays a piece. It knows no vocabulary.

The expressions are those of the models' own tokenizer.json files, where we know them, since that is
what the models were trained with; else those of llama-vocab.cpp at llama.cpp 0c1e57098. llama.cpp
rewrites some for its regex engine, and then differs from the original in corners that its vectors
do not test: `(?i:'s)` matches a long s (U+017F) in the original only.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from edgequant.errors import UnsupportedError

_LOWER_CONTRACTION = r"'s|'t|'re|'ve|'m|'ll|'d"
_CONTRACTION = rf"(?i:{_LOWER_CONTRACTION})"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_HEAD = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_TAIL = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_SLASHED_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_CJK = "[一-龥぀-ゟ゠-ヿ]+"
_ASCII_SYMBOL = '[!"' r"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"

GPT2 = rf"{_LOWER_CONTRACTION}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+"
LLAMA3 = rf"{_CONTRACTION}|{_WORD}|\p{{N}}{{1,3}}|{_SYMBOLS}|{_SPACES}"
QWEN2 = rf"{_CONTRACTION}|{_WORD}|\p{{N}}|{_SYMBOLS}|{_SPACES}"
QWEN35 = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
TEKKEN = rf"{_HEAD}*{_TAIL}+|{_HEAD}+{_TAIL}*|\p{{N}}|{_SLASHED_SYMBOLS}|{_SPACES}"
GPT4O = (
    rf"{_HEAD}*{_TAIL}+{_CONTRACTION}?|{_HEAD}+{_TAIL}*{_CONTRACTION}?|\p{{N}}{{1,3}}"
    rf"|{_SLASHED_SYMBOLS}|{_SPACES}"
)
DEEPSEEK3 = (
    rf"{_ASCII_SYMBOL}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"
)
SEED_CODER = (
    rf"{_CONTRACTION}|{_WORD}|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BAILING = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
BLOOM = " ?[^(\\s|.,!?…。，、।۔،)]+"
# Escaped where Unicode's normal form would replace the letter by another.
_DEEPSEEK_LLM_LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅ"
    "Ὀ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛ"
    "Ꜣ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
_DEEPSEEK_CJK = "[一-龥ࠀ-一가-퟿]+"


@dataclass(frozen=True)
class Split:
    """A way of cutting.

    Attributes:
        names: the values of `tokenizer.ggml.pre` that mean it; the first is the one we write.
        patterns: regular expressions in Oniguruma's syntax, applied in turn.
        ignore_merges: a piece that is in the vocabulary whole is one token, whatever the merges.
        add_bos: whether BOS is added when the file does not say.
        compose: the text is brought to Unicode's NFC first, which no GGUF key says.
    """

    names: tuple[str, ...]
    patterns: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False
    compose: bool = False


SPLITS = (
    Split(
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
        (LLAMA3,),
        ignore_merges=True,
        add_bos=True,
    ),
    Split(("smaug-bpe", "dbrx", "chatglm-bpe"), (LLAMA3,)),
    Split(("glm4", "glm5"), (LLAMA3,), ignore_merges=True),
    Split(("qwen2",), (QWEN2,), compose=True),
    Split(
        (
            "deepseek-r1-qwen", "stablelm2", "kormo", "f2llmv2", "megrez", "hunyuan", "solar-open",
            "grok-2",
        ),
        (QWEN2,),
    ),
    Split(("qwen35",), (QWEN35,)),
    Split(
        (
            "gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4",
            "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "gigachat", "a.x-4.0", "mellum",
            "modern-bert",
        ),
        (GPT2,),
    ),
    Split(
        (
            "smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b",
            "mellum2",
        ),
        (r"\p{N}", GPT2),
    ),
    Split(("falcon",), (r"[\p{P}\$\+<=>\^~\|`]+", GPT2, r"[0-9][0-9][0-9]")),
    Split(("deepseek-llm",), (
        r"[\r\n]", rf"\s?[{_DEEPSEEK_LLM_LETTERS}]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$",
        _DEEPSEEK_CJK, r"\p{N}+",
    )),
    Split(
        ("deepseek-coder",), (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_CJK, r"\p{N}")
    ),
    Split(("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"), (r"\p{N}{1,3}", _CJK, DEEPSEEK3)),
    Split(("tekken",), (TEKKEN,), ignore_merges=True, add_bos=True),
    Split(("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"), (GPT4O,)),
    Split(("seed-coder",), (SEED_CODER,)),
    Split(("bailingmoe", "bailingmoe2", "llada-moe"), (BAILING,)),
    Split(("bloom", "poro-chat", "gpt3-finnish"), (BLOOM,)),
    Split(("viking",), (BLOOM, r"\p{N}")),
    Split(("default",), (r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
)  # fmt: skip

_BY_NAME = {name: split for split in SPLITS for name in split.names}


def find_split(name: str, where: str) -> Split:
    """Return the rule that a file's `tokenizer.ggml.pre` names.

    Raises:
        UnsupportedError: the name is not one we know; the hint lists those we do.
    """
    split = _BY_NAME.get(name)
    if split is None:
        raise UnsupportedError(
            f"{where}: tokenizer.ggml.pre is {name!r}, a way of splitting text that is not known.",
            hint=f"use a model with one of: {', '.join(sorted(_BY_NAME))}.",
        )
    return split


def recognize_split(patterns: Sequence[str], *, ignore_merges: bool, compose: bool) -> Split | None:
    """Return the first rule that cuts by these expressions in this way, or None if no rule does."""
    wanted = (tuple(patterns), ignore_merges)
    found = [split for split in SPLITS if (split.patterns, split.ignore_merges) == wanted]
    exact = [split for split in found if split.compose == compose]
    return next(iter(exact or found), None)
