"""A vocabulary on its way from a checkpoint to GGUF keys: a list with holes to be filled."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace

from edgequant.errors import CheckpointError
from edgequant.tokenizer.spm import SPACE
from edgequant.tokenizer.tokenizer import TokenType

_ADDED_SCORE = -1000.0
_PADDING_SCORE = -10000.0
# Added tokens that some checkpoints forget to call special. Source: does_token_look_special,
# conversion/base.py at llama.cpp 0c1e57098.
_CONTROL_TEXTS = {"<pad>", "<mask>", "<2mass>", "[@BOS@]"}
_CONTROL_ENDS = (("<|", "|>"), ("<｜", "｜>"), ("<unused", ">"))


@dataclass(frozen=True)
class Entry:
    """A token: its text, its type, and its score (which only SentencePiece-style ones use)."""

    text: str
    type: TokenType = TokenType.NORMAL
    score: float = 0.0


@dataclass(frozen=True)
class Listing:
    """What a tokenizer file says.

    Attributes:
        model: the value of `tokenizer.ggml.model`: "gpt2" or "llama".
        pre: the value of `tokenizer.ggml.pre`.
        entries: by id; ids may be missing.
        merges: "left right", best first; empty for "llama".
        space_prefix: a space is put before a text; None if the file does not say.
        adds: whether "bos" and "eos" are added, where the file says.
    """

    model: str
    pre: str
    entries: Mapping[int, Entry]
    merges: tuple[str, ...] = ()
    space_prefix: bool | None = None
    adds: Mapping[str, bool] = field(default_factory=dict)


def add_entry(entries: dict[int, Entry], number: int, text: str, *, special: bool) -> None:
    """Put an added token in its place, also where a token is already.

    A special one becomes a control token. Of others, a "▁" means a space: they are looked for in
    the text before spaces are rewritten.
    """
    old = entries.get(number)
    if old is not None and old.type == TokenType.UNKNOWN and old.text == text:
        return
    ends = any(text.startswith(first) and text.endswith(last) for first, last in _CONTROL_ENDS)
    if special or ends or text in _CONTROL_TEXTS:
        entries[number] = Entry(text, TokenType.CONTROL, _ADDED_SCORE)
    else:
        plain = text.replace(SPACE, " ")
        entries[number] = Entry(plain, TokenType.USER_DEFINED, _ADDED_SCORE)


def mark_control(entries: dict[int, Entry], texts: Set[str]) -> None:
    """Make control tokens of those normal ones that have one of these texts."""
    for number, entry in entries.items():
        if entry.text in texts and entry.type == TokenType.NORMAL:
            entries[number] = replace(entry, type=TokenType.CONTROL)


def fill(entries: Mapping[int, Entry], rows: int, where: str) -> list[Entry]:
    """Return one entry for every row of the embedding; holes and the end become unused tokens.

    Raises:
        CheckpointError: an id has no row, or two ids have the same text.
    """
    highest = max(entries, default=-1)
    if highest >= rows or min(entries, default=0) < 0:
        number = highest if highest >= rows else min(entries)
        raise CheckpointError(
            f"{where}: token {number:,} is {entries[number].text!r}, but the embedding has "
            f"{rows:,} rows.",
            hint="use the tokenizer that belongs to these weights, or remove the added token.",
        )
    seen: dict[str, int] = {}
    filled = []
    for number in range(rows):
        entry = entries.get(number)
        if entry is None or not entry.text:
            entry = Entry(f"[PAD{number}]", TokenType.UNUSED, _PADDING_SCORE)
        first = seen.setdefault(entry.text, number)
        if first != number:
            raise CheckpointError(
                f"{where}: tokens {first:,} and {number:,} are both {entry.text!r}.",
                hint="remove one of them from the tokenizer's files.",
            )
        filled.append(entry)
    return filled
