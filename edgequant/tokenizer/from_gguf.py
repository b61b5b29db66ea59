"""A tokenizer from the keys of a GGUF file.

What the keys say is checked before it is used: a file may come from anywhere. What holds when a key
is absent follows llama-vocab.cpp at llama.cpp 0c1e57098, with one difference: a byte-level
vocabulary whose file names no BOS or EOS has none (llama.cpp takes token 11, which is Falcon's). It
reads no Hugging Face file and no tensor.
"""

import re
from collections.abc import Mapping

from edgequant.errors import GGUFError, UnsupportedError
from edgequant.tokenizer.bpe import ByteLevelBpe, bytes_of
from edgequant.tokenizer.merges import Merges
from edgequant.tokenizer.split import find_split
from edgequant.tokenizer.spm import SPACE, ScoreBpe
from edgequant.tokenizer.stops import find_stops, mark_stops
from edgequant.tokenizer.tokenizer import Specials, Tokenizer, TokenType
from edgequant.tokenizer.vocabulary import RECONVERT, Vocabulary

__all__ = ["Tokenizer", "read_tokenizer"]

_SILENT = {TokenType.CONTROL, TokenType.UNKNOWN, TokenType.UNUSED}
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def read_tokenizer(keys: Mapping[str, object], where: str) -> Tokenizer:
    """Make the tokenizer that a file's keys describe.

    Args:
        keys: the file's keys with plain values.
        where: the file's name, for messages.

    Raises:
        GGUFError: keys are missing, of the wrong type, or contradict each other; merges that make
            no sense are met by `Tokenizer.encode`.
        UnsupportedError: the kind of vocabulary, or its way of splitting text, is not known.
    """
    kind = Vocabulary.kind(keys, where)
    if kind not in ("gpt2", "llama"):
        raise UnsupportedError(
            f"{where}: tokenizer.ggml.model is {kind!r}, a kind of vocabulary that is not known.",
            hint="use a model with one of: gpt2 (byte-level BPE), llama (SentencePiece-style BPE).",
        )
    vocabulary = Vocabulary(keys, where)
    mark_stops(vocabulary)
    return _read_byte_level(vocabulary) if kind == "gpt2" else _read_scored(vocabulary)


def _read_byte_level(vocabulary: Vocabulary) -> Tokenizer:
    where = vocabulary.where
    split = find_split(vocabulary.text("pre", "default"), where)
    usable = _usable(vocabulary)
    merges = Merges(vocabulary.strings("merges"), usable, vocabulary.ids, where)
    engine = ByteLevelBpe(usable, merges, split)
    plain = {TokenType.NORMAL, TokenType.BYTE}

    def piece(number: int) -> bytes:
        token, kind = vocabulary.tokens[number], vocabulary.type_of(number)
        return bytes_of(token) if kind in plain else b"" if kind in _SILENT else token.encode()

    specials = _specials(vocabulary, bos=None, eos=None, add_bos=split.add_bos)
    return Tokenizer(
        engine,
        vocabulary.tokens,
        vocabulary.unusual,
        piece,
        specials,
        space_prefix=False,
        chat_template=vocabulary.chat_template,
    )


def _read_scored(vocabulary: Vocabulary) -> Tokenizer:
    where, size = vocabulary.where, len(vocabulary.tokens)
    scores = vocabulary.numbers("scores")
    if len(scores) != size:
        raise GGUFError(
            f"{where}: tokenizer.ggml.scores has {len(scores):,} entries; there are {size:,} "
            "tokens.",
            hint=RECONVERT,
        )
    if any(score != score for score in scores):  # NaN has no order
        raise GGUFError(f"{where}: tokenizer.ggml.scores holds NaN.", hint=RECONVERT)
    bytes_at = _byte_tokens(vocabulary)
    unknown = vocabulary.special("unknown_token_id", 0)
    fallback = [bytes_at[byte] for byte in range(256)] if len(bytes_at) == 256 else None
    engine = ScoreBpe(_usable(vocabulary, without=TokenType.BYTE), scores, fallback, unknown)
    byte_of = {number: byte for byte, number in bytes_at.items()}

    def piece(number: int) -> bytes:
        kind = vocabulary.type_of(number)
        return _scored_piece(vocabulary.tokens[number], kind, byte_of.get(number))

    return Tokenizer(
        engine,
        vocabulary.tokens,
        vocabulary.unusual,
        piece,
        _specials(vocabulary, bos=1, eos=2, add_bos=True),
        space_prefix=vocabulary.flag("add_space_prefix", default=True),
        chat_template=vocabulary.chat_template,
    )


def _scored_piece(token: str, kind: int, byte: int | None) -> bytes:
    if byte is not None:
        return bytes([byte])
    if kind in _SILENT:
        return b""
    if kind == TokenType.USER_DEFINED:
        return token.encode()
    return token.replace(SPACE, " ").encode()


def _usable(vocabulary: Vocabulary, without: TokenType | None = None) -> dict[str, int]:
    """Return the tokens that plain text may become, with their ids."""
    barred = {TokenType.CONTROL, TokenType.UNKNOWN, without}
    usable = vocabulary.ids.copy()
    for number, kind in vocabulary.unusual.items():
        if kind in barred:
            usable.pop(vocabulary.tokens[number], None)
    return usable


def _byte_tokens(vocabulary: Vocabulary) -> dict[int, int]:
    """Return the ids of the tokens "<0x00>" to "<0xFF>" by their byte."""
    found: dict[int, int] = {}
    for number, kind in vocabulary.unusual.items():
        if kind != TokenType.BYTE:
            continue
        token = vocabulary.tokens[number]
        match = _BYTE.fullmatch(token)
        if match is None:
            raise GGUFError(
                f"{vocabulary.where}: token {number:,} is marked as a byte, but is {token!r}, not "
                "of the form '<0x0A>'.",
                hint=RECONVERT,
            )
        found[int(match[1], 16)] = number
    return found


def _specials(
    vocabulary: Vocabulary, *, bos: int | None, eos: int | None, add_bos: bool
) -> Specials:
    bos = vocabulary.special("bos_token_id", bos)
    eos = vocabulary.special("eos_token_id", eos)
    adds = {
        "bos": vocabulary.flag("add_bos_token", default=add_bos and bos is not None),
        "eos": vocabulary.flag("add_eos_token", default=False),
    }
    for name, number in (("bos", bos), ("eos", eos)):
        if adds[name] and number is None:
            raise GGUFError(
                f"{vocabulary.where}: tokenizer.ggml.add_{name}_token is true, but there is no "
                f"tokenizer.ggml.{name}_token_id.",
                hint=RECONVERT,
            )
    return Specials(bos, eos, adds["bos"], adds["eos"], find_stops(vocabulary, eos))
