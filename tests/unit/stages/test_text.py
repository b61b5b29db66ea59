"""Texts as they are, and chunks that start with one BOS exactly if the vocabulary adds it."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from edgequant.errors import FileError, TextError
from edgequant.stages.text import cut, read_text


@dataclass
class Letters:
    """Each letter is a token, its code point; BOS is 0."""

    bos: int | None = 0
    add_bos: bool = True

    def encode(
        self, text: str, *, add_special: bool = True, parse_special: bool = False
    ) -> NDArray[np.int32]:
        ids = [ord(letter) for letter in text]
        start = [self.bos] if add_special and self.add_bos and self.bos is not None else []
        return np.array(start + ids, dtype=np.int32)


def test_line_ends_stay(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes("a\r\nb\u2028é".encode())
    assert read_text(path) == "a\r\nb\u2028é"


def test_what_is_not_a_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    with pytest.raises(FileError, match=r"t\.txt: no such file"):
        read_text(path)
    with pytest.raises(FileError, match=r"cannot be read: Is a directory"):
        read_text(tmp_path)
    path.write_bytes(b"")
    with pytest.raises(TextError, match=r"t\.txt: is empty"):
        read_text(path)
    path.write_bytes(b"abc\xff\xfe")
    with pytest.raises(TextError, match=r"byte 3 of 5 is not UTF-8"):
        read_text(path)


def test_chunks_replace_their_first_token_by_bos() -> None:
    chunks = cut(Letters(), "abcdefghij", context=4, chunks=None, where="t")
    # 11 tokens with BOS: the tail of three is dropped, "d" gives way to BOS.
    assert chunks.tolist() == [[0, 97, 98, 99], [0, 101, 102, 103]]
    assert chunks.dtype == np.int32


@pytest.mark.parametrize("tokenizer", [Letters(add_bos=False), Letters(bos=None)])
def test_without_bos_chunks_are_the_text(tokenizer: Letters) -> None:
    chunks = cut(tokenizer, "abcdefghij", context=4, chunks=1, where="t")
    assert chunks.tolist() == [[97, 98, 99, 100]]
    assert len(cut(tokenizer, "abcdefghij", context=4, chunks=9, where="t")) == 2


def test_too_short_a_text_says_both_numbers() -> None:
    with pytest.raises(TextError, match=r"t: has 7 tokens, but two chunks of 4 are needed, 8\."):
        cut(Letters(), "abcdef", context=4, chunks=None, where="t")
    assert len(cut(Letters(), "abcdefg", context=4, chunks=None, where="t")) == 2
