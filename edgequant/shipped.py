"""Where the files that ship with the package are: shaders and calibration text.

A wheel carries them as `edgequant/_shaders` and `edgequant/_calibration`; a checkout, and so an
editable install, has them one folder up. This is the only place that knows.
"""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def shipped(folder: str) -> Path:
    """Return the directory of a shipped folder: "shaders" or "calibration".

    Raises:
        FileNotFoundError: the installation is incomplete (a packaging fault of ours).
    """
    for path in (_PACKAGE / f"_{folder}", _PACKAGE.parent / folder):
        if path.is_dir():
            return path
    raise FileNotFoundError(f"{folder}: not found beside or inside {_PACKAGE}")
