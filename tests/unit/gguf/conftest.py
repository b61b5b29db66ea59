"""GGUF files made by hand, byte by byte, without our writer: sound, or broken in one place."""

import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from edgequant.gguf.reader import GGUFFile, open_file
from edgequant.gguf.spec import ValueType


class Forge:
    """Packs the pieces of a GGUF file, and opens what it packed."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "forged.gguf"

    def text(self, content: str | bytes) -> bytes:
        encoded = content.encode() if isinstance(content, str) else content
        return struct.pack("<Q", len(encoded)) + encoded

    def key(self, name: str | bytes, kind: int, payload: bytes) -> bytes:
        return self.text(name) + struct.pack("<I", kind) + payload

    def u32(self, name: str, value: int) -> bytes:
        return self.key(name, ValueType.UINT32, struct.pack("<I", value))

    def array(self, name: str, item: int, count: int, payload: bytes) -> bytes:
        return self.key(name, ValueType.ARRAY, struct.pack("<IQ", item, count) + payload)

    def tensor(
        self, name: str | bytes, disk_shape: Sequence[int], kind: int = 0, offset: int = 0
    ) -> bytes:
        """Pack a tensor's entry; the shape as on disk, the contiguous axis first."""
        sizes = struct.pack(f"<I{len(disk_shape)}Q", len(disk_shape), *disk_shape)
        return self.text(name) + sizes + struct.pack("<IQ", kind, offset)

    def file(
        self,
        keys: Sequence[bytes] = (),
        tensors: Sequence[bytes] = (),
        data: bytes = b"",
        *,
        magic: bytes = b"GGUF",
        version: int = 3,
        alignment: int = 32,
        key_count: int | None = None,
        tensor_count: int | None = None,
    ) -> bytes:
        counts = (
            len(tensors) if tensor_count is None else tensor_count,
            len(keys) if key_count is None else key_count,
        )
        head = magic + struct.pack("<IQQ", version, *counts) + b"".join((*keys, *tensors))
        return head + bytes(-len(head) % alignment) + data

    def open(self, content: bytes) -> GGUFFile:
        self.path.write_bytes(content)
        return open_file(self.path)


@pytest.fixture
def forge(tmp_path: Path) -> Forge:
    return Forge(tmp_path)
