"""Token ids to text as they come: a character is given out when its last byte is there."""

import codecs
from collections.abc import Callable


class Detokenizer:
    """Turns a stream of ids into text.

    Args:
        piece: returns the bytes of a token.
        drop_space: take away one space at the very start.
    """

    def __init__(self, piece: Callable[[int], bytes], *, drop_space: bool) -> None:
        self._piece = piece
        self._drop_space = drop_space
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, number: int) -> str:
        """Take the next id; return the text that is complete now, often ""."""
        return self._begin(self._decoder.decode(self._piece(number)))

    def finish(self) -> str:
        """Return what is left: U+FFFD for a character that never became whole, else ""."""
        return self._begin(self._decoder.decode(b"", final=True))

    def _begin(self, text: str) -> str:
        if text and self._drop_space:
            self._drop_space = False
            return text.removeprefix(" ")
        return text
