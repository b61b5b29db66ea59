"""A SentencePiece `tokenizer.model`, as a `Listing`: the few protobuf fields that are needed.

Source: sentencepiece_model.proto of SentencePiece 0.2.0. ModelProto: 1 pieces, 2 trainer_spec,
3 normalizer_spec. SentencePiece: 1 piece, 2 score, 3 type, whose numbers are GGUF's. TrainerSpec:
3 model_type (2 is BPE). NormalizerSpec: 3 add_dummy_prefix. Its rules for rewriting characters are
not read: no GGUF key of this kind of vocabulary can hold them, and llama.cpp has none.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from edgequant.errors import CheckpointError, UnsupportedError
from edgequant.tokenizer.listing import Entry, Listing
from edgequant.tokenizer.tokenizer import TokenType

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_KINDS = {1: "unigram", 2: "BPE", 3: "word", 4: "character"}
_MAX_VARINT_BYTES = 10
T = TypeVar("T", int, bytes)


def read_sentencepiece(path: Path) -> Listing:
    """Read a tokenizer.model.

    A user-defined piece becomes a normal one, as in llama.cpp's conversion: its score of zero makes
    it merge first.

    Raises:
        CheckpointError: it is not a SentencePiece model, or cut short.
        UnsupportedError: it is one, but not of the BPE kind.
    """
    try:
        listing = _read(path.read_bytes(), path)
    except (ValueError, struct.error, OSError) as error:
        raise CheckpointError(
            f"{path}: not a SentencePiece model: {error}.", hint="download tokenizer.model again."
        ) from error
    if not listing.entries:
        raise CheckpointError(
            f"{path}: a SentencePiece model without pieces.", hint="download tokenizer.model again."
        )
    return listing


def _read(content: bytes, path: Path) -> Listing:
    entries: dict[int, Entry] = {}
    kind, prefix = 1, True
    for number, value in _fields(content):
        if number == 1:
            entries[len(entries)] = _piece(_take(value, bytes))
        elif number == 2:
            kind = _integer(_take(value, bytes), 3, kind)
        elif number == 3:
            prefix = bool(_integer(_take(value, bytes), 3, 1))
    if entries and kind != 2:
        raise UnsupportedError(
            f"{path}: a SentencePiece model of the kind {_KINDS.get(kind, kind)}; only BPE is "
            "known.",
            hint="use a checkpoint whose tokenizer is BPE.",
        )
    return Listing("llama", "default", entries, space_prefix=prefix)


def _piece(message: bytes) -> Entry:
    text, score, kind = "", 0.0, TokenType.NORMAL
    for number, value in _fields(message):
        if number == 1:
            text = _take(value, bytes).decode()
        elif number == 2:
            score = struct.unpack("<f", _take(value, bytes))[0]
        elif number == 3:
            kind = TokenType(_take(value, int))
    return Entry(text, TokenType.NORMAL if kind == TokenType.USER_DEFINED else kind, score)


def _integer(message: bytes, field: int, default: int) -> int:
    """Return an integer field of a message, `default` if it is not there."""
    return next((_take(value, int) for n, value in _fields(message) if n == field), default)


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field of a message.

    Raises:
        ValueError: the bytes are not a message.
    """
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(message, at)
            yield number, value
            continue
        if wire == _BYTES:
            length, at = _varint(message, at)
        elif wire in (_FIXED32, _FIXED64):
            length = 4 if wire == _FIXED32 else 8
        else:
            raise ValueError(f"wire type {wire} at byte {at:,}")
        if length > len(message) - at:
            raise ValueError(f"a field of {length:,} bytes, {len(message) - at:,} are left")
        yield number, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return the integer that starts here, and where it ends."""
    value = 0
    for count, byte in enumerate(message[at : at + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value, at + count + 1
    raise ValueError(f"an integer without end at byte {at:,}")


def _take(value: int | bytes, kind: type[T]) -> T:
    if type(value) is not kind:
        raise ValueError(f"a field of type {type(value).__name__}, {kind.__name__} is needed")
    return value
