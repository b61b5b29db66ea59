"""A tokenizer: special tokens around an engine that knows none.

`encode` cuts the text at special tokens, the leftmost first and the longest of those that start
together, and gives what lies between to the engine. With `parse_special` off, the text of a control
token is plain text: no input can make a control token. (llama.cpp's can, if the letters of a
control token happen to merge; Hugging Face's, which has no such mode, is not asked.)
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edgequant.errors import TextError
from edgequant.tokenizer.detokenizer import Detokenizer


class TokenType(IntEnum):
    """What a token is; the values of `tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class Engine(Protocol):
    """Turns text without special tokens into ids."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text."""
        ...


@dataclass(frozen=True)
class Specials:
    """The tokens with a meaning of their own, and when they are added.

    Attributes:
        bos: begins a text; None if the vocabulary has none.
        eos: ends a text.
        add_bos: `encode` puts BOS first.
        add_eos: `encode` puts EOS last.
        end_of_generation: after any of these a model has finished speaking.
    """

    bos: int | None
    eos: int | None
    add_bos: bool
    add_eos: bool
    end_of_generation: frozenset[int]


class Tokenizer:
    """Text to token ids and back; `unusual` are the types of tokens that are not NORMAL, by id.

    Attributes:
        size: how many tokens the vocabulary has, padding included.
        bos: begins a text; None if the vocabulary has none.
        eos: ends a text.
        add_bos: `encode` puts BOS first.
        add_eos: `encode` puts EOS last.
        end_of_generation: after any of these a model has finished speaking.
        chat_template: a Jinja template, verbatim from the file; None if it has none.
    """

    def __init__(
        self,
        engine: Engine,
        tokens: Sequence[str],
        unusual: Mapping[int, int],
        piece: Callable[[int], bytes],
        specials: Specials,
        *,
        space_prefix: bool,
        chat_template: str | None,
    ) -> None:
        self.size = len(tokens)
        self.bos, self.eos = specials.bos, specials.eos
        self.add_bos, self.add_eos = specials.add_bos, specials.add_eos
        self.end_of_generation = specials.end_of_generation
        self.chat_template = chat_template
        self._engine = engine
        self._tokens = tokens
        self._piece = piece
        self._space_prefix = space_prefix
        named = {TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED}
        parsed = {tokens[i]: i for i, kind in unusual.items() if kind in named and tokens[i]}
        always = {text: i for text, i in parsed.items() if unusual[i] == TokenType.USER_DEFINED}
        self._parsed, self._always = _Cutter(parsed), _Cutter(always)

    def encode(
        self, text: str, *, add_special: bool = True, parse_special: bool = False
    ) -> NDArray[np.int32]:
        """Return the ids of a text.

        BOS is added even to a text that begins with one, as in llama.cpp: a chat template that
        writes its own BOS is encoded with `add_special=False`.

        Args:
            text: any string of Unicode characters; "" gives no ids but BOS and EOS.
            add_special: add BOS and EOS where the vocabulary says so.
            parse_special: the text of a control token becomes that token.

        Raises:
            TextError: the text holds half of a surrogate pair, as badly decoded bytes do.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise TextError(
                f"text: character {error.start:,} of {len(text):,} is {text[error.start]!a}, "
                "which is not a Unicode character.",
                hint="give the text in UTF-8.",
            ) from None
        ids: list[int] = []
        if add_special and self.add_bos and self.bos is not None:
            ids.append(self.bos)
        after_special = True
        for part in (self._parsed if parse_special else self._always).cut(text):
            if isinstance(part, int):
                ids.append(part)
            else:
                prefix = " " if self._space_prefix and after_special else ""
                ids.extend(self._engine.encode(prefix + part))
            after_special = isinstance(part, int)
        if add_special and self.add_eos and self.eos is not None:
            ids.append(self.eos)
        return np.array(ids, np.int32)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids; control tokens have none, broken UTF-8 becomes U+FFFD."""
        detokenizer = self.stream(continues=False)
        return "".join([detokenizer.feed(int(number)) for number in ids]) + detokenizer.finish()

    def stream(self, *, continues: bool = True) -> Detokenizer:
        """Return something that turns ids into text as they come.

        Args:
            continues: the text follows other text, so that a leading space belongs to it. If not,
                the space that `encode` puts before a text is taken away.
        """
        return Detokenizer(self._piece, drop_space=self._space_prefix and not continues)

    def piece(self, number: int) -> bytes:
        """Return the bytes of a token in a text; none of a control token."""
        return self._piece(number)

    def token(self, number: int) -> str:
        """Return a token as the vocabulary writes it, such as "Ġthe" or "<|im_end|>"."""
        return self._tokens[number]


class _Cutter:
    """Finds tokens by their text: the leftmost, and the longest of those that start together.

    llama.cpp looks for the longest anywhere first; the two differ only where the texts of two
    special tokens overlap. This is Hugging Face's way.
    """

    def __init__(self, ids: Mapping[str, int]) -> None:
        self._ids = ids
        longest_first = sorted(ids, key=len, reverse=True)
        pattern = "|".join(map(re.escape, longest_first))
        self._pattern = re.compile(f"({pattern})") if ids else None

    def cut(self, text: str) -> Iterable[str | int]:
        """Yield the texts between tokens, none empty, and the ids of the tokens, in order."""
        parts = self._pattern.split(text) if self._pattern else [text]
        for position, part in enumerate(parts):
            if position % 2:
                yield self._ids[part]
            elif part:
                yield part
