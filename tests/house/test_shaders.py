"""What is checked in under shaders/generated is what the sources give."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the shader compiler is installed on Linux")
def test_compiled_shaders_are_current() -> None:
    build = ROOT / "shaders" / "build.py"
    done = subprocess.run(
        [sys.executable, str(build), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
