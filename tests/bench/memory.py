"""Run a command and print the peak of its anonymous memory, its children's included (Linux).

    python tests/bench/memory.py COMMAND...

Mapped files belong to the page cache and do not count (RssAnon of /proc/PID/status, sampled every
5 ms). The exit status is the command's.
"""

import subprocess
import sys
import time
from pathlib import Path


def anonymous_bytes(pid: int) -> int:
    """Return RssAnon of a process and its descendants; 0 for one that has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [c for task in tasks for c in (task / "children").read_text().split()]
    except OSError:
        return 0
    own = [int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon:")]
    return 1024 * sum(own) + sum(anonymous_bytes(int(child)) for child in children)


def measure(command: list[str]) -> tuple[int, int, float]:
    """Run a command; returns its exit status, peak bytes, and seconds."""
    started = time.monotonic()
    process = subprocess.Popen(command)
    peak = 0
    while process.poll() is None:
        peak = max(peak, anonymous_bytes(process.pid))
        time.sleep(0.005)
    return process.returncode, peak, time.monotonic() - started


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    status, peak, seconds = measure(sys.argv[1:])
    print(f"peak RssAnon {peak / 1e6:.1f} MB in {seconds:.1f} s", file=sys.stderr)
    sys.exit(status)
