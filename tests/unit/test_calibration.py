import hashlib
import re
from collections import Counter
from pathlib import Path

import pytest

from edgequant.shipped import shipped

FOLDER = shipped("calibration")
TEXTS = sorted(FOLDER.glob("*.txt"))
NAMES = [path.name for path in TEXTS]
# | `code.txt` | 45,704 | 18,000 | `8f0c...` |
ROW = re.compile(r"^\| `(\w+\.txt)` \| ([\d,]+) \| ([\d,]+) \| `([0-9a-f]{64})` \|$", re.MULTILINE)
BLOCK = 100  # characters


def listed() -> dict[str, tuple[int, str]]:
    rows = ROW.findall((FOLDER / "README.md").read_text("utf-8"))
    return {name: (int(nbytes.replace(",", "")), digest) for name, nbytes, _, digest in rows}


def test_every_kind_of_text_is_there() -> None:
    assert NAMES == [
        "code.txt", "dialogue.txt", "essays.txt", "languages.txt", "numbers.txt", "prose.txt"
    ]  # fmt: skip


def test_the_mixture_has_its_size_and_no_kind_rules_it() -> None:
    sizes = {path.name: path.stat().st_size for path in TEXTS}
    total = sum(sizes.values())
    assert 250_000 <= total <= 350_000
    assert max(sizes.values()) <= total / 2


@pytest.mark.parametrize("path", TEXTS, ids=NAMES)
def test_a_text_is_the_one_that_the_readme_describes(path: Path) -> None:
    data = path.read_bytes()
    assert listed()[path.name] == (len(data), hashlib.sha256(data).hexdigest())


@pytest.mark.parametrize("path", TEXTS, ids=NAMES)
def test_a_text_is_utf_8_with_plain_line_ends(path: Path) -> None:
    data = path.read_bytes()
    text = data.decode("utf-8", errors="strict")
    assert b"\r" not in data
    assert "\ufffd" not in text
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\ufeff]", text)


@pytest.mark.parametrize("path", TEXTS, ids=NAMES)
def test_no_line_comes_again_and_again(path: Path) -> None:
    lines = Counter(line.strip() for line in path.read_text("utf-8").splitlines())
    often = {line: count for line, count in lines.items() if len(line) >= 20 and count > 5}
    assert often == {}


def test_no_passage_comes_twice() -> None:
    """A passage of twice BLOCK characters covers a whole block wherever it begins."""
    text = "\n".join(path.read_text("utf-8") for path in TEXTS)
    blocks = [text[start : start + BLOCK] for start in range(0, len(text) - BLOCK + 1, BLOCK)]
    assert [block for block in blocks if text.count(block) > 1] == []


@pytest.mark.parametrize(
    ("script", "letter"),
    [
        ("kana", "[\u3040-\u30ff]"),
        ("han", "[\u4e00-\u9fff]"),
        ("hangul", "[\uac00-\ud7a3]"),
        ("cyrillic", "[\u0400-\u04ff]"),
        ("arabic", "[\u0600-\u06ff]"),
        ("accented latin", "[\u00c0-\u017f]"),
    ],
)
def test_the_languages_are_in_their_scripts(script: str, letter: str) -> None:
    text = (FOLDER / "languages.txt").read_text("utf-8")
    assert len(re.findall(letter, text)) > 300, script
