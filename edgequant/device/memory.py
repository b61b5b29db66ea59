"""The memory of this machine: how much its system can still give, and where bytes lie in it."""

import os
from pathlib import Path

import numpy as np

FALLBACK = 4 << 30  # bytes, where the system says nothing
CGROUP = Path("/sys/fs/cgroup")
MEMINFO = Path("/proc/meminfo")


def available_bytes(meminfo: Path = MEMINFO, cgroup: Path = CGROUP) -> int:
    """Return the bytes that can be used without swapping; half of all memory where unknown."""
    known = [size for size in (_of_meminfo(meminfo), _of_cgroup(cgroup)) if size is not None]
    if known:
        return min(known)
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, OSError, ValueError):  # Windows has none of them
        return FALLBACK


def _of_meminfo(path: Path) -> int | None:
    try:
        for line in path.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    except (OSError, ValueError, IndexError):
        pass
    return None


def _of_cgroup(folder: Path) -> int | None:
    """Return what a container's limit leaves (cgroup v2, the root as a container sees it)."""
    try:
        limit = int((folder / "memory.max").read_text())
        used = int((folder / "memory.current").read_text())
    except (OSError, ValueError):  # no cgroup, or no limit ("max")
        return None
    return max(0, limit - used)


def address_of(content: bytes | memoryview) -> int:
    """Return where bytes lie."""
    return int(np.frombuffer(content, np.uint8).ctypes.data) if len(content) else 0
