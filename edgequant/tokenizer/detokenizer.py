"""Token ids to text as they come: a character is given out when its last byte is there."""

import codecs
from collections.abc import Sequence


class Detokenizer:
    """Turns a stream of ids into text.

    Args:
        pieces: the bytes of every token, by id.
        drop_space: take away one space at the very start.
    """

    def __init__(self, pieces: Sequence[bytes], *, drop_space: bool) -> None:
        self._pieces = pieces
        self._drop_space = drop_space
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, number: int) -> str:
        """Take the next id; return the text that is complete now, often ""."""
        return self._begin(self._decoder.decode(self._pieces[number]))

    def finish(self) -> str:
        """Return what is left: U+FFFD for a character that never became whole, else ""."""
        return self._begin(self._decoder.decode(b"", final=True))

    def _begin(self, text: str) -> str:
        if text and self._drop_space:
            self._drop_space = False
            return text.removeprefix(" ")
        return text
