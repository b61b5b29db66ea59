"""The token list of a GGUF file, and typed access to its other `tokenizer.*` keys.

It checks types, lengths and ranges; what the values mean is for `from_gguf`.
"""

from collections.abc import Mapping
from typing import TypeVar

from edgequant.errors import GGUFError
from edgequant.tokenizer.tokenizer import TokenType

RECONVERT = "convert the model again, or download another copy of the file."
_PREFIX = "tokenizer.ggml."
T = TypeVar("T")


class Vocabulary:
    """A file's tokens.

    Attributes:
        where: the file's name, for messages.
        tokens: by id; "" for an id that no text can become.
        unusual: the types, as in `TokenType`, of the tokens that are not NORMAL, by id.
        ids: of every token that is not "".
        chat_template: verbatim, or None.
    """

    def __init__(self, keys: Mapping[str, object], where: str) -> None:
        self.where = where
        self._keys = keys
        self.tokens = self.strings("tokens")
        size = len(self.tokens)
        if not size:
            raise GGUFError(f"{where}: tokenizer.ggml.tokens is empty.", hint=RECONVERT)
        normal = int(TokenType.NORMAL)  # an enum's member takes ten times as long to compare
        types = self._list("token_type", (int,), [normal] * size)
        if len(types) != size:
            raise GGUFError(
                f"{where}: tokenizer.ggml.token_type has {len(types):,} entries; there are "
                f"{size:,} tokens.",
                hint=RECONVERT,
            )
        self.unusual = {i: kind for i, kind in enumerate(types) if kind != normal}
        self.ids = dict(zip(self.tokens, range(size), strict=True))
        self.ids.pop("", None)
        if len(self.ids) + self.tokens.count("") != size:
            number = next(i for i, token in enumerate(self.tokens) if token and self.ids[token] > i)
            token = self.tokens[number]
            raise GGUFError(
                f"{where}: tokens {number:,} and {self.ids[token]:,} are both {token!r}.",
                hint=RECONVERT,
            )
        template = keys.get("tokenizer.chat_template")
        self.chat_template = template if isinstance(template, str) else None

    def type_of(self, number: int) -> int:
        """Return the type of a token."""
        return self.unusual.get(number, TokenType.NORMAL)

    def mark(self, number: int, kind: TokenType) -> None:
        """Say that a token is of a type, whatever the file calls it."""
        self.unusual[number] = kind

    @staticmethod
    def kind(keys: Mapping[str, object], where: str) -> str:
        """Return what kind of vocabulary a file has, such as "gpt2".

        Raises:
            GGUFError: it has none.
        """
        kind = keys.get(f"{_PREFIX}model")
        if not isinstance(kind, str):
            raise GGUFError(
                f"{where}: there is no tokenizer.ggml.model, so the file holds no tokenizer.",
                hint="use a file that was converted with its tokenizer.",
            )
        return kind

    def strings(self, name: str) -> list[str]:
        """Return a list of strings.

        Raises:
            GGUFError: absent, or not a list of strings.
        """
        return self._list(name, (str,), None)

    def numbers(self, name: str) -> list[float]:
        """Return a list of numbers; raises GGUFError as `strings` does."""
        return self._list(name, (float, int), None)

    def text(self, name: str, default: str) -> str:
        """Return a string, `default` if absent."""
        return self._value(name, str, default)

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a truth value, `default` if absent."""
        return self._value(name, bool, default)

    def special(self, name: str, default: int | None = None) -> int | None:
        """Return the id that a key names; `default` if it is absent and the vocabulary has it.

        Raises:
            GGUFError: no token has this id.
        """
        number = self._value(name, int, -1)
        size = len(self.tokens)
        if f"{_PREFIX}{name}" not in self._keys:
            return default if default is not None and default < size else None
        if not 0 <= number < size:
            raise GGUFError(
                f"{self.where}: {_PREFIX}{name} is {number:,}; there are {size:,} tokens.",
                hint=RECONVERT,
            )
        return number

    def _value(self, name: str, kind: type[T], default: T) -> T:
        value = self._keys.get(f"{_PREFIX}{name}", default)
        if type(value) is not kind:
            raise GGUFError(
                f"{self.where}: {_PREFIX}{name} is of type {type(value).__name__}; "
                f"{kind.__name__} is needed.",
                hint=RECONVERT,
            )
        return value

    def _list(self, name: str, kinds: tuple[type, ...], default: list[T] | None) -> list[T]:
        values = self._keys.get(f"{_PREFIX}{name}", default)
        if values is None:
            raise GGUFError(f"{self.where}: there is no {_PREFIX}{name}.", hint=RECONVERT)
        if not isinstance(values, list) or not set(map(type, values)) <= {
            *kinds,
            TokenType,
        }:
            raise GGUFError(
                f"{self.where}: {_PREFIX}{name} is not a list of {kinds[0].__name__}.",
                hint=RECONVERT,
            )
        return values
