"""Broken and hostile files: each is refused with its name, the numbers, and a hint.

The cases named A1 to A7 are public faults of other readers.
"""

import os
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from edgequant.errors import FileError, GGUFError
from edgequant.gguf.reader import open_file
from edgequant.gguf.spec import MAX_ENTRIES, MAX_ITEMS, MAX_TEXT_BYTES, ValueType

HUGE = (1 << 64) - 1
CASES: dict[str, tuple[Callable[[Any], bytes], str]] = {
    "A1 a dimension of 2^42+1": (
        lambda f: f.file(tensors=[f.tensor("a", [(1 << 42) + 1])], data=bytes(64)),
        r"tensor 'a' ends at byte 17,592,186,044,420 of the tensors, but the file has 64 bytes",
    ),
    "A1 a product that wraps": (
        lambda f: f.file(tensors=[f.tensor("a", [HUGE, 2, 1, 1])], data=bytes(64)),
        r"tensor 'a' ends at byte 147,573,952,589,676,412,920 .* has 64 bytes",
    ),
    "A1 a sum that wraps": (
        lambda f: f.file(
            tensors=[f.tensor("a", [8]), f.tensor("b", [8], offset=(1 << 64) - 32)], data=bytes(64)
        ),
        r"tensor 'b' ends at byte 18,446,744,073,709,551,616 .* has 64 bytes",
    ),
    "A2 a million dimensions": (
        lambda f: f.file(
            tensors=[f.tensor("a", [1])[:9] + struct.pack("<I", 10**6)], data=bytes(9)
        ),
        r"tensor 'a' has 1,000,000 dimensions; at most 4",
    ),
    "A2 2^32-1 dimensions": (
        lambda f: f.file(tensors=[f.text("a") + struct.pack("<I", (1 << 32) - 1)], data=bytes(64)),
        r"tensor 'a' has 4,294,967,295 dimensions",
    ),
    "A3 nine dimensions": (
        lambda f: f.file(tensors=[f.tensor("a", [1] * 9)], data=bytes(64)),
        r"tensor 'a' has 9 dimensions",
    ),
    "A4 a string of a GiB": (
        lambda f: f.file([f.key("k", ValueType.STRING, struct.pack("<Q", 1 << 30))]),
        r"the value of key 'k' takes 1,073,741,824 bytes from byte \d+, but the file has 64",
    ),
    "A4 a key of a GiB": (
        lambda f: f.file([struct.pack("<Q", 1 << 30) + bytes(64)]),
        r"the name of key 0 takes 1,073,741,824 bytes",
    ),
    "A4 an array of 2^30 items": (
        lambda f: f.file([f.array("k", ValueType.UINT32, 1 << 30, bytes(16))]),
        r"key 'k' claims 1,073,741,824 items of at least 4 bytes, but the file has \d+ more",
    ),
    "A4 an array of 2^64-1 strings": (
        lambda f: f.file([f.array("k", ValueType.STRING, HUGE, bytes(16))]),
        r"key 'k' claims 18,446,744,073,709,551,615 items of at least 8 bytes",
    ),
    "A4 an alignment of 2^30": (
        lambda f: f.file([f.u32("general.alignment", 1 << 30)]),
        r"general.alignment is 1073741824 \(UINT32\); it must be a power of two up to 1,048,576",
    ),
    "A6 an unknown tensor type": (
        lambda f: f.file(tensors=[f.tensor("a", [8], kind=999)], data=bytes(64)),
        r"tensor 'a' has type 999, which is none of the 35 known \(0 to 42\)",
    ),
    "A6 a removed tensor type": (
        lambda f: f.file(tensors=[f.tensor("a", [32], kind=4)], data=bytes(64)),
        r"tensor 'a' has type 4, which is none",
    ),
    "A6 2^63 keys": (
        lambda f: f.file(key_count=1 << 63, data=bytes(64)),
        r"claims 9,223,372,036,854,775,808 keys; at most 5 are possible in the 72 bytes",
    ),
    "A6 2^64-1 tensors": (
        lambda f: f.file(tensor_count=HUGE, data=bytes(64)),
        r"claims 18,446,744,073,709,551,615 tensors; at most 3 are possible in the 72 bytes",
    ),
    "A7 a tensor twice": (
        lambda f: f.file(
            tensors=[f.tensor("a", [8]), f.tensor("a", [8], offset=32)], data=bytes(64)
        ),
        r"has tensor 'a' twice",
    ),
    "a key twice": (
        lambda f: f.file([f.u32("k", 1), f.u32("k", 2)]),
        r"has key 'k' twice",
    ),
    "an alignment of 0": (
        lambda f: f.file([f.u32("general.alignment", 0)]),
        r"general.alignment is 0 \(UINT32\)",
    ),
    "an alignment of 48": (
        lambda f: f.file([f.u32("general.alignment", 48)]),
        r"general.alignment is 48",
    ),
    "an alignment of another type": (
        lambda f: f.file([f.key("general.alignment", ValueType.STRING, f.text("32"))]),
        r"general.alignment is '32' \(STRING\)",
    ),
    "an offset between": (
        lambda f: f.file(tensors=[f.tensor("a", [8], offset=16)], data=bytes(64)),
        r"tensor 'a' starts at 16, not a multiple of 32",
    ),
    "overlapping tensors": (
        lambda f: f.file(
            tensors=[f.tensor("a", [16]), f.tensor("b", [8], offset=32)], data=bytes(64)
        ),
        r"tensor 'b' starts at 32, inside 'a', which ends at 64",
    ),
    "a tensor past the end": (
        lambda f: f.file(tensors=[f.tensor("a", [32, 2])], data=bytes(255)),
        r"tensor 'a' ends at byte 256 of the tensors, but the file has 255 bytes",
    ),
    "no tensor section": (
        lambda f: f.file(tensors=[f.tensor("a", [8])])[:-1],
        r"tensor 'a' ends at byte 32 of the tensors, but the file has 0 bytes",
    ),
    "half a block": (
        lambda f: f.file(tensors=[f.tensor("a", [300], kind=12)], data=bytes(999)),
        r"tensor 'a' has rows of 300 weights, which are not whole blocks of 256 \(Q4_K\)",
    ),
    "no weights": (
        lambda f: f.file(tensors=[f.tensor("a", [8, 0])], data=bytes(64)),
        r"tensor 'a' has shape \(0, 8\): no weights",
    ),
    "an unknown value type": (
        lambda f: f.file([f.key("k", 13, bytes(8))]),
        r"key 'k' has value type 13; types are 0 to 12",
    ),
    "an unknown item type": (
        lambda f: f.file([f.array("k", 77, 1, bytes(8))]),
        r"the items of key 'k' has value type 77",
    ),
    "an array of arrays": (
        lambda f: f.file([f.array("k", ValueType.ARRAY, 1, struct.pack("<IQ", 0, 1) + b"x")]),
        r"key 'k' is an array of arrays",
    ),
    "a key's name in Latin-1": (
        lambda f: f.file([f.key(b"caf\xe9", ValueType.BOOL, b"\x01")]),
        r"the name of key 0 is not UTF-8: byte 0xe9 at position 3 of 4",
    ),
    "a value in Latin-1": (
        lambda f: f.file([f.key("k", ValueType.STRING, f.text(b"caf\xe9 au lait"))]),
        r"the value of key 'k' is not UTF-8: byte 0xe9 at position 3 of 12",
    ),
    "a tensor's name in Latin-1": (
        lambda f: f.file(tensors=[f.tensor(b"\xff", [8])], data=bytes(64)),
        r"the name of tensor 0 is not UTF-8",
    ),
    "strings that pass the end": (
        lambda f: f.file([f.array("k", ValueType.STRING, 2, f.text("ab") + struct.pack("<Q", 99))]),
        r"item 1 of 2 of key 'k' passes the end of the file, which has \d+ bytes",
    ),
    "strings without lengths": (
        lambda f: f.file([f.array("k", ValueType.STRING, 2, f.text("a" * 15))], alignment=1),
        r"item 1 of 2 of key 'k' passes the end of the file",
    ),
    "version 1": (lambda f: f.file(version=1), r"is GGUF version 1; versions read are 2 and 3"),
    "version 4": (lambda f: f.file(version=4), r"is GGUF version 4"),
    "big-endian": (
        lambda f: f.file(version=3 << 24),
        r"is a big-endian GGUF file of version 3; only little-endian is read",
    ),
    "a magic and no more": (
        lambda f: b"GGUF",
        r"the version takes 4 bytes from byte 4, but the file has 4",
    ),
    "cut in the counts": (
        lambda f: f.file()[:20],
        r"the number of keys takes 8 bytes from byte 16, but the file has 20",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_broken_head_is_refused(forge: Any, case: str) -> None:
    make, message = CASES[case]
    with pytest.raises(GGUFError, match=message) as caught:
        forge.open(make(forge))
    assert caught.value.what.startswith(f"{forge.path}: ")
    assert caught.value.hint


def test_the_checks_hold_without_asserts(forge: Any, tmp_path: Path) -> None:
    for number, (make, _) in enumerate(CASES.values()):
        (tmp_path / f"{number}.gguf").write_bytes(make(forge))
    code = (
        "import sys\nfrom pathlib import Path\nfrom edgequant.errors import GGUFError\n"
        "from edgequant.gguf.reader import open_file\nrefused = 0\n"
        "for path in Path(sys.argv[1]).glob('*.gguf'):\n"
        "    try:\n        open_file(path)\n    except GGUFError:\n        refused += 1\n"
        "print(refused, __debug__)"
    )
    done = subprocess.run(
        [sys.executable, "-O", "-c", code, tmp_path], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(len(CASES)), "False"]


def test_every_cut_is_refused(forge: Any) -> None:
    keys = [forge.u32("k", 1), forge.array("t", ValueType.STRING, 2, forge.text("a") * 2)]
    whole = forge.file(keys, [forge.tensor("a", [8])], bytes(range(32)))
    assert forge.open(whole).tensors["a"].shape == (8,)
    for length in range(len(whole)):
        with pytest.raises(GGUFError):
            forge.open(whole[:length])


HOSTILE: dict[str, tuple[Callable[[Any], bytes], str]] = {
    "a string of half the file": (
        lambda f: f.file([f.key("k", ValueType.STRING, struct.pack("<Q", 1 << 29))]),
        rf"names and strings hold more than {MAX_TEXT_BYTES:,} bytes, reached at the value of "
        r"key 'k' with 536,870,912",
    ),
    "a hundred million empty strings": (
        lambda f: f.file([f.array("k", ValueType.STRING, 10**8, b"")]),
        rf"arrays hold more than {MAX_ITEMS:,} items, reached at key 'k' with 100,000,000",
    ),
    "a billion bytes": (
        lambda f: f.file([f.array("k", ValueType.UINT8, 10**9, b"")]),
        rf"arrays hold more than {MAX_ITEMS:,} items",
    ),
    "as many keys as fit": (
        lambda f: f.file(key_count=50_000_000),
        rf"claims 50,000,000 keys; at most {MAX_ENTRIES:,} are possible in the 1,073,[\d,]+ bytes",
    ),
    "as many tensors as fit": (
        lambda f: f.file(tensor_count=MAX_ENTRIES),
        r"has tensor '' twice|no weights",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_huge_hostile_file_costs_little(forge: Any, case: str) -> None:
    make, message = HOSTILE[case]
    forge.path.write_bytes(make(forge))
    os.truncate(forge.path, 1 << 30)  # sparse: the rest reads as zeros
    tracemalloc.start()
    start = process_time()
    try:
        with pytest.raises(GGUFError, match=message):
            open_file(forge.path)
        seconds, peak = process_time() - start, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 << 20
    assert seconds < 5


def test_the_longest_walk_is_short(forge: Any) -> None:
    forge.path.write_bytes(forge.file([forge.array("k", ValueType.STRING, MAX_ITEMS, b"")]))
    os.truncate(forge.path, 1 << 26)
    start = process_time()
    with open_file(forge.path) as file:
        assert len(file.keys["k"].value) == MAX_ITEMS
    assert process_time() - start < 5


FOREIGN = {
    "a git-lfs pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1\n",
    "an HTML page": b"\n<!DOCTYPE html><html><head><title>Sign in</title>",
    "an XML document": b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>",
    "a safetensors file": struct.pack("<Q", 60) + b'{"a":{"dtype":"F32"' + b" " * 50,
    "a JSON file": b'{"architectures": ["LlamaForCausalLM"]}',
    "a text file": "Ein Text, kein Modell: größer als nichts.".encode(),
    "a zip archive": b"PK\x03\x04" + bytes(30),
    "a Python pickle": b"\x80\x02}q\x00" + bytes(30),
    "gzip-compressed": b"\x1f\x8b\x08" + bytes(30),
    "zstd-compressed": b"\x28\xb5\x2f\xfd" + bytes(30),
    "xz-compressed": b"\xfd7zXZ\x00" + bytes(30),
    "a GGML file": b"lmgg" + bytes(30),
    "a GGMF file": b"fmgg" + bytes(30),
    "a GGJT file": b"tjgg\x03" + bytes(30),
    "a big-endian file with its magic reversed": b"FUGG" + bytes(30),
    "nothing but zeros": bytes(700),
    "an importance matrix in llama.cpp's old .dat form": struct.pack("<ii", 42, 19) + b"blk.0.attn",
    "of no known kind; it starts with the bytes 00 01 02 03": bytes(range(200)),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_another_kind_of_file_is_named(forge: Any, what: str) -> None:
    with pytest.raises(GGUFError, match=f"is not GGUF, but {what}") as caught:
        forge.open(FOREIGN[what])
    assert caught.value.hint.endswith(".")


def test_text_longer_than_the_head_may_be_cut_in_a_character(forge: Any) -> None:
    for shift in range(4):
        with pytest.raises(GGUFError, match="a text file"):
            forge.open(b"x" * shift + "日本語のテキスト".encode() * 40)


def test_an_empty_file_is_named(forge: Any) -> None:
    with pytest.raises(GGUFError, match=r"is empty"):
        forge.open(b"")


def test_paths_that_are_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"absent.gguf: no such file"):
        open_file(tmp_path / "absent.gguf")
    folder = tmp_path / "folder.gguf"
    folder.mkdir()
    with pytest.raises(FileError, match=r"folder.gguf: is a directory, not a GGUF file"):
        open_file(folder)
    with pytest.raises(FileError, match=r"cannot be read: Not a directory"):
        open_file(Path(__file__) / "inside.gguf")
    with pytest.raises(FileError, match=r"cannot be read: File name too long"):
        open_file(tmp_path / ("x" * 5000))


@pytest.mark.skipif(sys.platform == "win32", reason="has no such files")
def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(FileError, match=r"pipe.gguf: is not a plain file"):
        open_file(tmp_path / "pipe.gguf")
