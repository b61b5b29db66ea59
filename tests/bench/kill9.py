"""Kill a command that writes a file, at random moments, and see that no half-file is left (Linux).

    python tests/bench/kill9.py [-n 20] OUTPUT COMMAND...

Each time: the command is started, killed with SIGKILL by its pid after a random part of the time a
whole run takes, and nothing may exist under OUTPUT. At the end the command must succeed, and only
OUTPUT may be there.
"""

import argparse
import random
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    """Read the command line, and kill."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, default=20, help="how often to kill")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("output", type=Path)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    output: Path = args.output
    if output.exists():
        sys.exit(f"{output} exists already")
    started = time.monotonic()
    subprocess.run(args.command, check=True, stdout=subprocess.DEVNULL)
    whole = time.monotonic() - started
    size = output.stat().st_size
    output.unlink()
    print(f"a whole run takes {whole:.2f} s and writes {size:,} bytes")
    rng = random.Random(args.seed)
    killed = 0
    while killed < args.n:
        wait = rng.uniform(0, whole)
        process = subprocess.Popen(
            args.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            process.wait(wait)
            output.unlink()  # it was faster this time; not a kill
            continue
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        killed += 1
        rest = list(output.parent.glob(".edgequant-*.partial"))
        left = sum(path.stat().st_size for path in rest)
        print(f"kill {killed:2} after {wait:5.2f} s: {len(rest)} partial files, {left:,} bytes")
        for path in rest:
            path.unlink()
        if output.exists():
            sys.exit(f"FAILED: {output} exists after a kill, {output.stat().st_size:,} bytes")
    subprocess.run(args.command, check=True, stdout=subprocess.DEVNULL)
    if output.stat().st_size != size:
        sys.exit(f"FAILED: the run after the kills wrote {output.stat().st_size:,} bytes")
    print(f"{killed} kills, no file under the final name, and the run after them is whole")


if __name__ == "__main__":
    main()
