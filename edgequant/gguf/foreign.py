"""What a file that is not GGUF is, as far as its first bytes tell: for the error message."""

import struct
from dataclasses import dataclass

HEAD_BYTES = 512


@dataclass(frozen=True)
class Kind:
    """What a file is ("a git-lfs pointer"), and what to do about it (imperative)."""

    what: str
    hint: str


_CONVERT = "name the checkpoint's directory, and make a GGUF of it with edgequant convert."
_OLD = "download the model again as GGUF; this format was given up in 2023."
_AGAIN = "download the file again; what arrived is not the model."

_PREFIXES = (
    (b"version https://git-lfs", Kind(
        "a git-lfs pointer, not the file it stands for",
        "fetch the file itself with git lfs pull, or download it from the model's page.")),
    (b"PK\x03\x04", Kind("a zip archive, such as a PyTorch checkpoint", _CONVERT)),
    (b"\x80\x02", Kind("a Python pickle, such as an old PyTorch checkpoint", _CONVERT)),
    (b"\x1f\x8b", Kind("gzip-compressed", "decompress it with gunzip first.")),
    (b"\x28\xb5\x2f\xfd", Kind("zstd-compressed", "decompress it with zstd -d first.")),
    (b"\xfd7zXZ", Kind("xz-compressed", "decompress it with xz -d first.")),
    (b"lmgg", Kind("a GGML file, the format before GGUF", _OLD)),
    (b"fmgg", Kind("a GGMF file, a format before GGUF", _OLD)),
    (b"tjgg", Kind("a GGJT file, a format before GGUF", _OLD)),
    (b"FUGG", Kind("a big-endian file with its magic reversed", _AGAIN)),
)  # fmt: skip


def recognise(head: bytes, size: int) -> Kind:
    """Say what a file is.

    Args:
        head: its first `HEAD_BYTES` bytes, or all of a shorter one.
        size: its length in bytes.
    """
    for prefix, kind in _PREFIXES:
        if head.startswith(prefix):
            return kind
    if not head.strip(b"\x00"):
        return Kind("nothing but zeros at its start", _AGAIN)
    if _is_safetensors(head, size):
        return Kind("a safetensors file", _CONVERT)
    if _is_imatrix(head):
        return Kind(
            "an importance matrix in llama.cpp's old .dat form",
            "pass it to edgequant quantize --imatrix, which reads both forms.",
        )
    return _recognise_text(head) or Kind(
        f"of no known kind; it starts with the bytes {head[:8].hex(' ')}",
        "check the path, and that the download is complete.",
    )


def _is_safetensors(head: bytes, size: int) -> bool:
    return len(head) > 8 and 2 <= int.from_bytes(head[:8], "little") < size and head[8:9] == b"{"


def _is_imatrix(head: bytes) -> bool:
    # int32 entries, then int32 name length and name of each: imatrix.cpp, llama.cpp 0c1e57098.
    if len(head) < 16:
        return False
    entries, length = struct.unpack_from("<ii", head)
    return entries > 0 and 0 < length < 256 and head[8:].startswith((b"blk.", b"output."))


def _recognise_text(head: bytes) -> Kind | None:
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return Kind(
            "an HTML page", "download the file itself, not the page that shows it; log in if asked."
        )
    if start.startswith(b"<?xml"):
        return Kind("an XML document, probably a server's error message", _AGAIN)
    if b"\x00" in head or any(byte < 32 and byte not in b"\t\n\r\f\x1b" for byte in head):
        return None
    # The head may end inside a character: only bytes before its last three must be UTF-8.
    try:
        head[: max(len(head) - 3, 1)].decode("utf-8")
    except UnicodeDecodeError as error:
        if error.reason != "unexpected end of data":
            return None
    if start.startswith(b"{"):
        return Kind("a JSON file", _CONVERT)
    return Kind("a text file", "name the model file, which ends in .gguf as a rule.")
