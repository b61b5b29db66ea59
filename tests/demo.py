"""The main job on the bundled model: convert, imatrix, quantize, run, perplexity, in one table.

Uses only the command line of the installed package, so it also runs outside a checkout:
`python demo.py --checkpoint DIR --text FILE --output DIR`.
"""

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
PROMPT = "The old house stood at the end of the road, and"


def edgequant(*words: object, stream: bool = False) -> dict[str, Any]:
    """Run one command, showing it as a user would type it, and return its JSON report."""
    arguments = [str(word) for word in words]
    print(f"\n$ edgequant {shlex.join(arguments)}", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "edgequant", *arguments]
    if stream:
        subprocess.run(command, check=True)
        return {}
    done = subprocess.run([*command, "--json"], check=True, stdout=subprocess.PIPE, text=True)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def main() -> None:
    """Run the pipeline and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, default=HERE / "models" / "books-6m")
    parser.add_argument("--text", type=Path, default=HERE / "models" / "evaluation.txt")
    parser.add_argument("--output", type=Path, default=Path("demo"))
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    name = options.checkpoint.name
    full = options.output / f"{name}-f16.gguf"
    small = options.output / f"{name}-q4_k_m.gguf"
    matrix = options.output / f"{name}-imatrix.gguf"

    edgequant("convert", options.checkpoint, "-o", full, "--force")
    edgequant("imatrix", full, "-o", matrix, "--chunks", 40, "--force")
    edgequant("quantize", full, "-o", small, "--type", "Q4_K_M", "--imatrix", matrix, "--force")
    edgequant("run", small, "-p", PROMPT, "-n", 64, "--seed", 1, stream=True)

    rows = []
    for label, path in (("F16", full), ("Q4_K_M", small)):
        score = edgequant("perplexity", path, "-f", options.text)
        speed = edgequant("bench", path, "-p", 128, "-n", 32, "-r", 3)
        prefill = next(test for test in speed if test["n_prompt"])
        decode = next(test for test in speed if test["n_gen"])
        rows.append((label, path.stat().st_size, score, prefill, decode))

    table = Table(title=f"{name} on {rows[0][2]['device']}", title_justify="left")
    for heading in ("file", "MiB", "perplexity", "prefill tokens/s", "decode tokens/s"):
        table.add_column(heading, justify="left" if heading == "file" else "right")
    for label, size, score, prefill, decode in rows:
        table.add_row(
            label,
            f"{size / 2**20:.2f}",
            f"{score['perplexity']:.2f} ± {score['error']:.2f}",
            f"{prefill['avg_ts']:,.0f}",
            f"{decode['avg_ts']:,.0f}",
        )
    console = Console(highlight=False)
    console.print()
    console.print(table)
    console.print(f"The files are in {options.output}/")


if __name__ == "__main__":
    main()
