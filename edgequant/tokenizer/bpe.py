"""Byte-level BPE: text is cut into words, their bytes written as letters, and pairs merged by rank.

The engine is the `tokenizers` library. It knows neither special tokens nor files.
"""

import unicodedata
from collections.abc import Mapping, Sequence

from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from edgequant.tokenizer.split import Split


def _letters() -> tuple[str, ...]:
    """Return GPT-2's letter for each byte: itself if printable Latin-1, else one from U+0100 on."""
    plain = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return tuple(chr(byte if byte in plain else next(spare)) for byte in range(256))


LETTERS = _letters()
_BYTES = {letter: bytes([byte]) for byte, letter in enumerate(LETTERS)}


def bytes_of(token: str) -> bytes:
    """Return the bytes that a token's letters stand for; what is no letter stands for its UTF-8."""
    return b"".join([_BYTES.get(letter) or letter.encode() for letter in token])


class ByteLevelBpe:
    """Turns text into ids of a byte-level BPE vocabulary.

    Args:
        vocabulary: the tokens that text may become, with their ids.
        merges: pairs of tokens, best first; both parts and their union are in `vocabulary`.
        split: how text is cut into words.
    """

    def __init__(
        self, vocabulary: Mapping[str, int], merges: Sequence[tuple[str, str]], split: Split
    ) -> None:
        model = models.BPE(
            dict(vocabulary), list(merges), ignore_merges=split.ignore_merges, fuse_unk=False
        )
        self._compose = split.compose
        self._engine = Tokenizer(model)
        cuts = [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in split.patterns
        ]
        letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        self._engine.pre_tokenizer = pre_tokenizers.Sequence([*cuts, letters])

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text without special tokens; bytes without a token are dropped."""
        if self._compose:
            text = unicodedata.normalize("NFC", text)
        ids: list[int] = self._engine.encode(text, add_special_tokens=False).ids
        return ids
