"""Strings of a file are found many at once; the walk from one to the next is what they mean."""

import struct

import numpy as np
import pytest

from edgequant.gguf import arrays
from edgequant.gguf.arrays import Array, find_strings
from edgequant.gguf.spec import ValueType


def walk(content: bytes, start: int, count: int) -> tuple[list[int], int]:
    """Step from one string to the next."""
    found: list[int] = []
    while len(found) < count and len(content) - start >= 8:
        end = start + 8 + int.from_bytes(content[start : start + 8], "little")
        if end > len(content):
            break
        found.append(start)
        start = end
    return found, start


def written(texts: list[bytes]) -> bytes:
    return b"".join(struct.pack("<Q", len(text)) + text for text in texts)


LETTERS = [b"a", "\u0120the".encode(), b"\xff", b" "]
SHAPES = {
    "short": lambda rng: b"".join(LETTERS[i] for i in rng.integers(4, size=rng.integers(1, 12))),
    "some empty": lambda rng: b"x" * int(rng.integers(3)),
    "some long": lambda rng: b"y" * int(rng.choice([3, 255, 256, 300, 9000])),
    "some NULs": lambda rng: bytes(rng.choice([0, 65], size=rng.integers(1, 30)).tolist()),
    "lengths in texts": lambda rng: struct.pack("<Q", rng.integers(20)) + b"z",
}


@pytest.mark.parametrize("few", [1, 30])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_search_finds_what_the_walk_finds(
    shape: str, few: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "_WINDOW", 700)
    monkeypatch.setattr(arrays, "_FEW", few)
    texts = [SHAPES[shape](rng) for _ in range(400)]
    content = b"head" + written(texts)
    after = content + bytes(rng.integers(256, size=999, dtype=np.uint8))
    for view, count in ((content, 400), (after, 400), (content[:-1], 400), (content, 13)):
        places, end = find_strings(memoryview(view), 4, count)
        assert (places.tolist(), end) == walk(view, 4, count)
    found = Array(ValueType.STRING, 400, memoryview(content)[4:]).items
    assert [text.encode("utf-8", "surrogateescape") for text in found] == texts  # type: ignore[attr-defined]


@pytest.mark.parametrize("content", [b"", bytes(7), struct.pack("<Q", 1), b"\xff" * 40])
def test_where_no_string_is_none_is_found(content: bytes) -> None:
    places, end = find_strings(memoryview(content), 0, 3)
    assert (places.tolist(), end) == ([], 0)
    assert find_strings(memoryview(content), 0, 0)[1] == 0
