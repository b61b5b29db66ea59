"""Fetches llama.cpp's own tokenizer vectors into .cache/vocabs, once.

They are vocabularies as GGUF files, most with texts (.inp) and their ids (.out). Being a third
party's, they are not in the repository: they come out of the source archive of llama-cpp-python,
which pip downloads and checks (77 MB; the vectors are 100 MB). Run as
`python tests/parity/fetch_vocabs.py`; `make test` does.
"""

import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VERSION = "0.3.36"
FOLDER = Path(__file__).parents[2] / ".cache" / "vocabs"
_WANTED = re.compile(r".*/vendor/llama\.cpp/models/(ggml-vocab-[a-z0-9.-]+\.gguf(?:\.inp|\.out)?)")


def fetch() -> None:
    """Fill the folder, unless it is complete."""
    done = FOLDER / f"llama-cpp-python-{VERSION}"
    if done.exists():
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER.parent) as scratch:
        command = [sys.executable, "-m", "pip", "download", "--no-binary", ":all:", "--no-deps"]
        package = f"llama-cpp-python=={VERSION}"
        subprocess.run([*command, "--dest", scratch, package], check=True)
        (archive,) = Path(scratch).glob("*.tar.gz")
        with tarfile.open(archive) as members:
            for member in members:
                match = _WANTED.fullmatch(member.name)
                content = members.extractfile(member) if match and member.isfile() else None
                if match and content:
                    (FOLDER / match[1]).write_bytes(content.read())
    done.touch()


if __name__ == "__main__":
    fetch()
