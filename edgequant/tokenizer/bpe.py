"""Byte-level BPE: text is cut into words, their bytes written as letters, and pairs merged by rank.

The engine is the `tokenizers` library; for a short text, such as the prompt that a model is started
for, words are merged here: making the engine of 280,000 merges takes longer than loading weights.
It knows neither special tokens nor files.
"""

import unicodedata
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from math import inf

from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from edgequant.tokenizer.merges import Merges
from edgequant.tokenizer.split import Split


def _letters() -> tuple[str, ...]:
    """Return GPT-2's letter for each byte: itself if printable Latin-1, else one from U+0100 on."""
    plain = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return tuple(chr(byte if byte in plain else next(spare)) for byte in range(256))


SHORT = 500  # characters that are merged here; the work grows with the square of a word

LETTERS = _letters()
_BYTES = {letter: bytes([byte]) for byte, letter in enumerate(LETTERS)}


def bytes_of(token: str) -> bytes:
    """Return the bytes that a token's letters stand for; what is no letter stands for its UTF-8."""
    return b"".join([_BYTES.get(letter) or letter.encode() for letter in token])


class ByteLevelBpe:
    """Turns text into ids of a byte-level BPE vocabulary.

    Args:
        vocabulary: the tokens that text may become, with their ids.
        merges: pairs of them.
        split: how text is cut into words.
    """

    def __init__(self, vocabulary: Mapping[str, int], merges: Merges, split: Split) -> None:
        self._vocabulary = vocabulary
        self._merges = merges
        self._ignore_merges = split.ignore_merges
        self._compose = split.compose
        cuts = [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in split.patterns
        ]
        letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        self._words = pre_tokenizers.Sequence([*cuts, letters])

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text without special tokens; bytes without a token are dropped.

        Raises:
            GGUFError: a merge that is wanted is not two tokens that make a third.
        """
        if self._compose:
            text = unicodedata.normalize("NFC", text)
        if len(text) <= SHORT:
            words = self._words.pre_tokenize_str(text)
            return [number for word, _ in words for number in self._merged(word)]
        ids: list[int] = self._engine.encode(text, add_special_tokens=False).ids
        return ids

    @cached_property
    def _engine(self) -> Tokenizer:
        engine = Tokenizer(
            models.BPE(
                dict(self._vocabulary),
                self._merges.pairs(),
                ignore_merges=self._ignore_merges,
                fuse_unk=False,
            )
        )
        engine.pre_tokenizer = self._words
        return engine

    def _merged(self, word: str) -> Iterator[int]:
        """Merge the pair of the best rank, the first of equals, until there is none."""
        parts = [letter for letter in word if letter in self._vocabulary]
        if self._ignore_merges and word in self._vocabulary:
            parts = [word]
        while len(parts) > 1:
            ranks = [self._merges.rank(left, right) for left, right in pairwise(parts)]
            best = min(ranks)
            if best == inf:
                break
            place = ranks.index(best)
            parts[place : place + 2] = ["".join(parts[place : place + 2])]
        return (self._vocabulary[part] for part in parts)
