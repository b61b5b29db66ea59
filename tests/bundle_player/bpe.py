"""Byte-level BPE from a bundle's tokenizer.json, and text from its pieces.bin.

As much as byte-level vocabularies need: special tokens, NFC, splitting by regular expressions,
merging by rank. Python's `re` knows no \\p{L}: the letters of a Unicode category are listed for it.
"""

import codecs
import json
import re
import unicodedata
from array import array
from itertools import groupby, pairwise
from math import inf

LAST = 0x40000  # there are no letters, numbers or signs beyond


class Words:
    """Text to ids and back."""

    def __init__(self, folder, manifest):
        told = manifest["tokenizer"]
        assert told["kind"] == "byte-level BPE", "this player knows no other kind"
        content = json.loads((folder / told["file"]).read_text("utf-8"))
        model, steps = content["model"], content["pre_tokenizer"]["pretokenizers"]
        assert steps[-1]["type"] == "ByteLevel"
        self._begin = [told["bos"]] if told["add_bos"] else []
        self._vocabulary = model["vocab"]
        self._ranks = {tuple(pair): rank for rank, pair in enumerate(model["merges"])}
        self._whole = model["ignore_merges"]
        self._compose = content["normalizer"] is not None
        self._cuts = [re.compile(_plain(step["pattern"]["Regex"])) for step in steps[:-1]]
        self._added = {token["content"]: token["id"] for token in content["added_tokens"]}
        longest = sorted(self._added, key=len, reverse=True)
        self._special = re.compile("(" + "|".join(map(re.escape, longest)) + ")")
        self._letters = _letters()
        raw = (folder / told["pieces"]).read_bytes()
        self._offsets = array("I", raw[: 4 * (told["size"] + 1)])
        self._bytes = raw[4 * (told["size"] + 1) :]
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def encode(self, text):
        """Return the ids of a prompt."""
        ids = []
        for part in self._special.split(text):
            if part in self._added:
                ids.append(self._added[part])
                continue
            words = [unicodedata.normalize("NFC", part) if self._compose else part]
            for cut in self._cuts:
                words = [piece for word in words for piece in _isolate(cut, word)]
            for word in words:
                ids.extend(self._merge("".join(self._letters[byte] for byte in word.encode())))
        return ids if ids[:1] == self._begin else self._begin + ids

    def feed(self, token):
        """Return the text that a token completes."""
        start, stop = self._offsets[token], self._offsets[token + 1]
        return self._decoder.decode(self._bytes[start:stop])

    def finish(self):
        """Return what is left of a character that never became whole."""
        return self._decoder.decode(b"", final=True)

    def _merge(self, word):
        parts = [word] if self._whole and word in self._vocabulary else list(word)
        while len(parts) > 1:
            ranks = [self._ranks.get(pair, inf) for pair in pairwise(parts)]
            if min(ranks) == inf:
                break
            at = ranks.index(min(ranks))
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        return [self._vocabulary[part] for part in parts]


def _isolate(cut, text):
    """Cut a text into what matches and what lies between."""
    end = 0
    for match in cut.finditer(text):
        if match.start() > end:
            yield text[end : match.start()]
        if match[0]:
            yield match[0]
        end = match.end()
    if end < len(text):
        yield text[end:]


def _letters():
    """Return the letter of each byte: itself if it is printable in Latin-1, else from U+0100 on."""
    plain = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return [chr(byte if byte in plain else next(spare)) for byte in range(256)]


def _plain(pattern):
    """Return a regular expression with every \\p{…} replaced by the letters it means."""
    found, inside, at = [], False, 0
    while at < len(pattern):
        category = re.compile(r"\\p\{(\w+)\}").match(pattern, at)
        if category:
            listed = _ranges(category[1])
            found.append(listed if inside else f"[{listed}]")
            at = category.end()
        elif pattern[at] == "\\":
            found.append(pattern[at : at + 2])
            at += 2
        else:
            inside = pattern[at] == "[" or (inside and pattern[at] != "]")
            found.append(pattern[at])
            at += 1
    return "".join(found)


def _ranges(category):
    """Return the letters of a Unicode category as a class of `re` lists them."""
    member = (unicodedata.category(chr(c)).startswith(category) for c in range(LAST))
    ranges = []
    for is_in, run in groupby(enumerate(member), key=lambda pair: pair[1]):
        if is_in:
            numbers = [number for number, _ in run]
            ranges.append(f"\\U{numbers[0]:08x}-\\U{numbers[-1]:08x}")
    return "".join(ranges)
