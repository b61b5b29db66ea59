"""Kill a command that writes a file, at random moments, and see what is left (Linux).

    python tests/bench/kill9.py [-n 20] OUTPUT COMMAND...

Each time: the command is started, killed with SIGKILL by its pid after a random part of the time a
whole run takes, and nothing may exist under OUTPUT, unless it is whole: a run that was resumed may
have been about to end. At the end the command must succeed, and only OUTPUT may be there, with the
bytes of the run that nobody killed.

If the command has --resume, what a kill leaves stays for the next run, which goes on from there;
else it is removed.
"""

import argparse
import random
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path


def digest(path: Path) -> str:
    """Return a file's SHA-256."""
    with path.open("rb") as file:
        hashed = sha256()
        while chunk := file.read(1 << 24):
            hashed.update(chunk)
    return hashed.hexdigest()


def left(directory: Path) -> list[Path]:
    """Return what a killed run left."""
    return list(directory.glob(".edgequant-*"))


def main() -> None:
    """Read the command line, and kill."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, default=20, help="how often to kill")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("output", type=Path)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    output: Path = args.output
    resumes = "--resume" in args.command
    if output.exists():
        sys.exit(f"{output} exists already")
    started = time.monotonic()
    subprocess.run(args.command, check=True, stdout=subprocess.DEVNULL)
    whole = time.monotonic() - started
    expected = digest(output)
    print(f"a whole run takes {whole:.2f} s and writes {output.stat().st_size:,} bytes")
    output.unlink()
    rng = random.Random(args.seed)
    killed = finished = 0

    def check() -> None:
        if digest(output) != expected or left(output.parent):
            sys.exit(f"FAILED: {output} has other bytes, or files are left beside it")
        output.unlink()

    while killed < args.n:
        wait = rng.uniform(0, whole)
        process = subprocess.Popen(
            args.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            process.wait(wait)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        else:
            finished += 1  # it was faster this time; not a kill
            check()
            continue
        killed += 1
        rest = left(output.parent)
        nbytes = sum(path.stat().st_size for path in rest)
        tensors = sum(
            max(0, len(path.read_bytes().splitlines()) - 1)
            for path in rest
            if path.suffix == ".journal"
        )
        print(
            f"kill {killed:2} after {wait:5.2f} s: {len(rest)} files, {nbytes:,} bytes, "
            f"{tensors} tensors in the journal",
            flush=True,
        )
        if output.exists():
            check()
        if not resumes:
            for path in rest:
                path.unlink()
    subprocess.run(args.command, check=True, stdout=subprocess.DEVNULL)
    check()
    print(f"{killed} kills and {finished + 1} whole runs, all with the bytes of the first")


if __name__ == "__main__":
    main()
