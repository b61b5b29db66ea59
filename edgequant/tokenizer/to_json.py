"""A tokenizer.json in Hugging Face's form, from the keys of a GGUF file.

For apps that have a library for such files and none for GGUF. A byte-level vocabulary gives the
same ids there as here. A SentencePiece-style one has scores, not merges: these are made of them,
and where two merges have equal scores, the library may take another one first than `spm` does. The
keys have been read by `from_gguf` before, which checks them.
"""

from collections.abc import Mapping
from typing import Any

from edgequant.tokenizer.split import find_split
from edgequant.tokenizer.spm import SPACE
from edgequant.tokenizer.tokenizer import Tokenizer, TokenType

_PREFIX = "tokenizer.ggml."
_SPECIAL = {TokenType.CONTROL, TokenType.UNKNOWN}
Json = dict[str, Any]


def tokenizer_json(keys: Mapping[str, object], tokenizer: Tokenizer) -> Json:
    """Return the content of a tokenizer.json.

    Args:
        keys: of the file, with plain values.
        tokenizer: what `read_tokenizer` made of them.
    """
    tokens = _list(keys, "tokens")
    types = _list(keys, "token_type") or [TokenType.NORMAL] * len(tokens)
    for number in tokenizer.end_of_generation:
        types[number] = TokenType.CONTROL
    byte_level = keys[f"{_PREFIX}model"] == "gpt2"
    form = _byte_level(keys, tokens, types) if byte_level else _scored(keys, tokens, types)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            _added(number, tokens[number], special=kind in _SPECIAL)
            for number, kind in enumerate(types)
            if (kind in _SPECIAL or kind == TokenType.USER_DEFINED) and tokens[number]
        ],
        "post_processor": _template(tokenizer),
        **form,
    }


def _byte_level(keys: Mapping[str, object], tokens: list[str], types: list[int]) -> Json:
    split = find_split(str(keys.get(f"{_PREFIX}pre", "default")), "")
    usable = {token for token, kind in zip(tokens, types, strict=True) if kind not in _SPECIAL}
    cuts = [
        {
            "type": "Split",
            "pattern": {"Regex": pattern},
            "behavior": "Isolated",
            "invert": False,
        }
        for pattern in split.patterns
    ]
    letters = {"add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "normalizer": {"type": "NFC"} if split.compose else None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [*cuts, {"type": "ByteLevel", **letters}],
        },
        "decoder": {"type": "ByteLevel", **letters},
        "model": _model(
            tokens,
            [pair for pair in _written(keys) if {*pair, "".join(pair)} <= usable],
            ignore_merges=split.ignore_merges,
        ),
    }


def _scored(keys: Mapping[str, object], tokens: list[str], types: list[int]) -> Json:
    scores = _list(keys, "scores")
    barred = {*_SPECIAL, TokenType.BYTE}
    usable = {
        token: scores[number]
        for number, token in enumerate(tokens)
        if types[number] not in barred and token
    }
    ranked = sorted(usable, key=lambda token: -usable[token])
    merges = [
        (token[:cut], token[cut:])
        for token in ranked
        for cut in range(1, len(token))
        if token[:cut] in usable and token[cut:] in usable
    ]
    unknown = keys.get(f"{_PREFIX}unknown_token_id", 0)
    assert isinstance(unknown, int), "read_tokenizer checked it"
    prefix = keys.get(f"{_PREFIX}add_space_prefix", True)
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    begin = [{"type": "Prepend", "prepend": SPACE}] if prefix else []
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix else []
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*begin, spaces]},
        "pre_tokenizer": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                *strip,
            ],
        },
        "model": _model(tokens, merges, unknown=tokens[unknown], byte_fallback=True),
    }


def _model(
    tokens: list[str],
    merges: list[tuple[str, str]],
    *,
    unknown: str | None = None,
    byte_fallback: bool = False,
    ignore_merges: bool = False,
) -> Json:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": unknown,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": byte_fallback,
        "byte_fallback": byte_fallback,
        "ignore_merges": ignore_merges,
        "vocab": {token: number for number, token in enumerate(tokens) if token},
        "merges": merges,
    }


def _added(number: int, content: str, *, special: bool) -> Json:
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": content, **plain, "special": special}


def _template(tokenizer: Tokenizer) -> Json | None:
    """Return what puts BOS and EOS around a text; None if neither is added."""
    before = [tokenizer.bos] if tokenizer.add_bos and tokenizer.bos is not None else []
    after = [tokenizer.eos] if tokenizer.add_eos and tokenizer.eos is not None else []
    if not before and not after:
        return None

    def around(letter: str) -> list[Json]:
        special = [
            [{"SpecialToken": {"id": tokenizer.token(number), "type_id": 0}} for number in numbers]
            for numbers in (before, after)
        ]
        return [*special[0], {"Sequence": {"id": letter, "type_id": 0}}, *special[1]]

    names = {number: tokenizer.token(number) for number in (*before, *after)}
    return {
        "type": "TemplateProcessing",
        "single": around("A"),
        "pair": around("A") + around("B"),
        "special_tokens": {
            name: {"id": name, "ids": [number], "tokens": [name]} for number, name in names.items()
        },
    }


def _written(keys: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return the file's merges, each once; a token may begin with a space itself."""
    merges = dict.fromkeys(_list(keys, "merges"))
    cuts = ((merge, max(merge.find(" ", 1), 0)) for merge in merges)
    return [(merge[:cut], merge[cut + 1 :]) for merge, cut in cuts]


def _list(keys: Mapping[str, object], name: str) -> list[Any]:
    found = keys.get(f"{_PREFIX}{name}", ())
    assert isinstance(found, (list, tuple)), "read_tokenizer checked it"
    return list(found)
