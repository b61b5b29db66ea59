"""Text files, and their token ids cut as llama-perplexity and llama-imatrix cut them.

Those that calibrate take several texts, or the shipped ones; they take turns, chunk by chunk, so
that a few chunks see something of each.

Source: perplexity.cpp and imatrix.cpp, llama.cpp 0c1e57098.
"""

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edgequant.errors import FileError, TextError
from edgequant.shipped import shipped


class Encoder(Protocol):
    """What is asked of a tokenizer here."""

    bos: int | None
    add_bos: bool

    def encode(
        self, text: str, *, add_special: bool = True, parse_special: bool = False
    ) -> NDArray[np.int32]:
        """Return the ids of a text."""
        ...


def read_text(path: Path) -> str:
    """Return a text file as it is, line ends included.

    Raises:
        FileError: missing or unreadable.
        TextError: empty, or not UTF-8.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise FileError(f"{path}: no such file.", hint="check the path.") from error
    except OSError as error:
        raise FileError(
            f"{path}: cannot be read: {error.strerror}.", hint="name a text file that you may read."
        ) from error
    if not content:
        raise TextError(f"{path}: is empty.", hint="name a file with text in it.")
    return decode(content, str(path))


def decode(content: bytes, where: str) -> str:
    """Return the text of UTF-8 bytes.

    Raises:
        TextError: they are not UTF-8.
    """
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TextError(
            f"{where}: byte {error.start:,} of {len(content):,} is not UTF-8.",
            hint="save the text as UTF-8.",
        ) from error


def cut(
    tokenizer: Encoder, text: str, *, context: int, chunks: int | None, where: str
) -> NDArray[np.int32]:
    """Tokenize a text once and cut it into chunks that do not overlap; the tail is dropped.

    The first token of each chunk is replaced by BOS if the vocabulary adds BOS, so that every
    chunk starts with exactly one.

    Args:
        tokenizer: of the model.
        text: what to tokenize.
        context: tokens a chunk.
        chunks: how many at most; None for all.
        where: what to call the text in an error.

    Returns:
        (chunks, context) ids.

    Raises:
        TextError: fewer than two chunks of tokens.
    """
    ids = tokenizer.encode(text)
    if len(ids) < 2 * context:
        raise TextError(
            f"{where}: has {len(ids):,} tokens, but two chunks of {context:,} are needed, "
            f"{2 * context:,}.",
            hint="use a longer text, or a smaller --ctx.",
        )
    count = len(ids) // context if chunks is None else min(chunks, len(ids) // context)
    cut_ids = ids[: count * context].reshape(count, context).copy()
    if tokenizer.add_bos and tokenizer.bos is not None:
        cut_ids[:, 0] = tokenizer.bos
    return cut_ids


def shipped_texts() -> tuple[Path, ...]:
    """Return the calibration texts that are shipped."""
    return tuple(sorted(shipped("calibration").glob("*.txt")))


def take_turns(texts: Sequence[NDArray[np.int32]]) -> list[NDArray[np.int32]]:
    """Return the first chunk of each text, then the second of each, and so on."""
    rounds = zip_longest(*texts)
    return [chunk for turn in rounds for chunk in turn if chunk is not None]
