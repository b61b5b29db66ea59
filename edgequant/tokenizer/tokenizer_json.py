"""What a tokenizer.json says, as a `Listing`. It reads no other file.

The way of splitting text is found by comparing the steps of its pre-tokenizer with those we know,
as regular expressions; llama.cpp compares a hash of what one long string is split into.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from edgequant.errors import CheckpointError, UnsupportedError
from edgequant.tokenizer.json_file import content_of, expect, read_object
from edgequant.tokenizer.listing import Entry, Listing
from edgequant.tokenizer.split import GPT2, SPLITS, recognize_split
from edgequant.tokenizer.tokenizer import TokenType

_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_KNOWN = "byte-level BPE and SentencePiece-style BPE"


def read_tokenizer_json(path: Path) -> Listing:
    """Read a tokenizer.json.

    Raises:
        CheckpointError: it is not what it should be.
        UnsupportedError: it is, but does something that no GGUF key can say.
    """
    content = read_object(path)
    model = expect(content.get("model"), dict, f"{path}: model")
    kind = model.get("type", "BPE")
    odd = [key for key in ("continuing_subword_prefix", "end_of_word_suffix") if model.get(key)]
    if kind != "BPE" or odd:
        raise UnsupportedError(
            f"{path}: the model is {kind}{''.join(f' with {key}' for key in odd)}, which is not "
            "known.",
            hint=f"use a checkpoint whose tokenizer is {_KNOWN}.",
        )
    vocab = expect(model.get("vocab"), dict, f"{path}: model.vocab")
    ids = {text: expect(number, int, f"{path}: id of {text!r}") for text, number in vocab.items()}
    merges = _merges(model, path)
    adds = dict(_added_by(content.get("post_processor"), path))
    if model.get("byte_fallback"):
        entries = _scored_entries(ids, merges, content_of(model.get("unk_token")))
        return Listing(
            "llama", "default", entries, space_prefix=_space_prefix(content, path), adds=adds
        )
    entries = {number: Entry(text) for text, number in ids.items()}
    pre = _recognize(content, bool(model.get("ignore_merges")), path)
    return Listing("gpt2", pre, entries, tuple(map(" ".join, merges)), adds=adds)


def _merges(model: dict[str, object], path: Path) -> list[tuple[str, str]]:
    """Return the pairs, best first; they are written as "left right" or [left, right]."""
    pairs = []
    for rank, merge in enumerate(expect(model.get("merges"), list, f"{path}: model.merges")):
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(parts, list) or [type(part) for part in parts] != [str, str]:
            raise CheckpointError(
                f"{path}: merge {rank:,} is {merge!r}, not two tokens.",
                hint="download tokenizer.json again.",
            )
        pairs.append((parts[0], parts[1]))
    return pairs


def _scored_entries(
    ids: dict[str, int], merges: list[tuple[str, str]], unknown: str | None
) -> dict[int, Entry]:
    """Give each token the score -(rank of the first merge that makes it)."""
    ranks: dict[str, int] = {}
    for rank, (left, right) in enumerate(merges):
        ranks.setdefault(left + right, rank)

    def entry(text: str) -> Entry:
        if _BYTE.fullmatch(text):
            return Entry(text, TokenType.BYTE)
        if text == unknown:
            return Entry(text, TokenType.UNKNOWN)
        return Entry(text, score=-float(ranks.get(text, len(merges))))

    return {number: entry(text) for text, number in ids.items()}


def _recognize(content: dict[str, object], ignore_merges: bool, path: Path) -> str:
    """Return the value of `tokenizer.ggml.pre` for a byte-level tokenizer."""
    normalizers = [kind for kind, _ in _steps(content.get("normalizer"), "normalizers", path)]
    if normalizers not in ([], ["NFC"]):
        raise UnsupportedError(
            f"{path}: the text is normalized by {', '.join(normalizers)}, which is not known.",
            hint="use a checkpoint whose tokenizer has no normalizer, or NFC.",
        )
    patterns: list[str] = []
    byte_level = False
    for kind, step in _steps(content.get("pre_tokenizer"), "pretokenizers", path):
        byte_level = byte_level or kind == "ByteLevel"
        patterns += _patterns(kind, step, path)
    split = recognize_split(patterns, ignore_merges=ignore_merges, compose=bool(normalizers))
    if split is None or not byte_level:
        rule = " then ".join(patterns) or "nothing"
        known = ", ".join(split.names[0] for split in SPLITS)
        raise UnsupportedError(
            f"{path}: text is split by {rule}"
            f"{' and whole words ignore the merges' if ignore_merges else ''}"
            f"{'' if byte_level else ', not into bytes'}, which is not known.",
            hint=f"use a checkpoint whose tokenizer splits like one of: {known}.",
        )
    return split.names[0]


def _patterns(kind: str, step: dict[str, object], path: Path) -> list[str]:
    """Return the regular expressions of one step of a pre-tokenizer."""
    if kind == "Split":
        pattern = expect(step.get("pattern"), dict, f"{path}: pattern of a Split")
        text = pattern.get("Regex")
        if text is None:
            text = re.escape(expect(pattern.get("String"), str, f"{path}: pattern of a Split"))
        text = expect(text, str, f"{path}: pattern of a Split")
        # Where the expression covers every text, keeping what it matches is the same as cutting.
        if (step.get("behavior"), bool(step.get("invert"))) in (
            ("Isolated", False),
            ("Removed", True),
        ):
            return [text.replace("\r", r"\r").replace("\n", r"\n")]
    elif kind == "ByteLevel" and not step.get("add_prefix_space", True):
        return [GPT2] if step.get("use_regex", True) else []
    elif kind == "Digits":
        return [r"\p{N}" if step.get("individual_digits") else r"\p{N}+"]
    elif kind == "Punctuation" and step.get("behavior") == "Contiguous":
        return [r"[\p{P}\$\+<=>\^~\|`]+"]
    options = ", ".join(f"{key} {value}" for key, value in step.items() if key != "type")
    raise UnsupportedError(
        f"{path}: text is split by {kind} ({options}), which is not known.",
        hint=f"use a checkpoint whose tokenizer is {_KNOWN}.",
    )


def _space_prefix(content: dict[str, object], path: Path) -> bool:
    """Return whether a SentencePiece-style tokenizer puts a space before a text."""
    prefix = False
    for kind, _ in _steps(content.get("normalizer"), "normalizers", path):
        if kind == "Prepend":
            prefix = True
        elif kind != "Replace":
            raise UnsupportedError(
                f"{path}: the text is normalized by {kind}, which is not known.",
                hint="use a checkpoint whose tokenizer only rewrites spaces.",
            )
    for kind, step in _steps(content.get("pre_tokenizer"), "pretokenizers", path):
        if kind == "Metaspace":
            scheme = step.get("prepend_scheme", "always")
            prefix = scheme != "never" and bool(step.get("add_prefix_space", True))
        elif kind != "Split":  # Gemma's: after each space, where no merge crosses anyway
            raise UnsupportedError(
                f"{path}: text is split by {kind}, which is not known.",
                hint=f"use a checkpoint whose tokenizer is {_KNOWN}.",
            )
    return prefix


def _added_by(processor: object, path: Path) -> Iterator[tuple[str, bool]]:
    """Yield "bos" and "eos" and whether they are added, as far as the post-processor says.

    Source: _try_load_from_tokenizer_json, gguf-py 0.19.0: the special token that a template has
    first is taken for BOS, the one it has last for EOS.
    """
    for kind, step in _steps(processor, "processors", path):
        if kind == "ByteLevel":
            yield from (("bos", False), ("eos", False))
        elif kind == "TemplateProcessing":
            single = expect(step.get("single"), list, f"{path}: single of a template")
            if len(single) > 1:
                for name, item in (("bos", single[0]), ("eos", single[-1])):
                    if isinstance(item, dict) and "SpecialToken" in item:
                        yield name, True
        elif kind == "RobertaProcessing":
            yield from (("bos", True), ("eos", True))


def _steps(step: object, inner: str, path: Path) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the type and options of a step, or of each step of a sequence; nothing for None."""
    if step is None:
        return
    step = expect(step, dict, f"{path}: {inner}")
    kind = expect(step.get("type"), str, f"{path}: type of {inner}")
    if kind != "Sequence":
        yield kind, step
        return
    for part in expect(step.get(inner), list, f"{path}: {inner}"):
        yield from _steps(part, inner, path)
