"""What this user's programs keep that can be made again: where it lies.

It knows folders and names; what is in the files is the business of who writes them.
"""

import hashlib
import os
import re
import sys
from pathlib import Path

from edgequant.shipped import shipped


def cache_folder() -> Path:
    """Return where this user's programs keep what can be made again."""
    home = Path.home()
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"]) / "edgequant"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", home)) / "edgequant"
    if sys.platform in ("darwin", "ios"):
        return home / "Library" / "Caches" / "edgequant"
    return home / ".cache" / "edgequant"


def shipped_kernels(target: str) -> Path:
    """Return the folder of the kernels that ship with the package: of "spirv" or "metal"."""
    return shipped("shaders") / "generated" / target


def notes_file(device: str, kernels: Path, cache: Path | None = None) -> Path:
    """Return where to keep what is known of a device: another file for other kernels.

    Args:
        device: names hardware and driver.
        kernels: the folder of them.
        cache: the folder to keep it in, if not this user's.
    """
    digest = hashlib.sha256()
    for path in sorted(file for file in kernels.iterdir() if file.is_file()):
        digest.update(path.name.encode() + path.read_bytes())
    name = re.sub(r"[^\w.-]+", "-", f"{device}-{digest.hexdigest()[:16]}.json")
    return (cache or cache_folder()) / name
