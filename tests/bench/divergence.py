"""How much our files lose beside llama.cpp's: KL divergence to F16, same imatrix, one engine.

For each calibration draw, an equal part of the calibration text: an importance matrix of ours, then
our file and llama.cpp's (`llama_model_quantize`) made with it; all are held against F16 through the
`cpu` device, so that only the files differ.

    python tests/bench/divergence.py CHECKPOINT --calibration TEXT --evaluation TEXT

Prints, for each type, a line a draw, then the geometric mean of the ratios and the worst. Never
evaluate on what was calibrated on.
"""

import argparse
import ctypes
import json
import math
from pathlib import Path
from tempfile import TemporaryDirectory

import llama_cpp
import numpy as np

from edgequant.model.imatrix_file import read_importance
from edgequant.stages.compare import Comparison, compare
from edgequant.stages.convert import convert
from edgequant.stages.imatrix import collect
from edgequant.stages.quantize import quantize


def quantize_with_llama(
    model: Path, output: Path, imatrix: Path, recipe: str, threads: int = 0
) -> None:
    """Make llama.cpp's own file with the same importance; 0 threads is one a processor."""
    item = llama_cpp.llama_cpp.llama_model_imatrix_data
    matrix = read_importance(imatrix)
    means = {name: matrix.mean(name) for name in matrix.entries}
    table = (item * (len(means) + 1))()
    for entry, (name, mean) in zip(table, means.items(), strict=False):
        assert mean is not None
        entry.name = name.encode()
        entry.data = np.ascontiguousarray(mean).ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        entry.size = mean.size
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{recipe}")
    parameters.imatrix = table
    parameters.nthread = threads
    code = llama_cpp.llama_model_quantize(bytes(model), bytes(output), ctypes.byref(parameters))
    if code:
        raise SystemExit(f"llama_model_quantize returned {code}")


def draw(text: str, number: int, draws: int) -> str:
    """Return one of `draws` equal parts of the text, cut at a line."""
    size = len(text) // draws
    part = text[number * size : (number + 1) * size]
    return part[part.index("\n") + 1 : part.rindex("\n") + 1]


def measure(options: argparse.Namespace, folder: Path) -> Comparison:
    """Make all files of all draws, and compare them in one run."""
    full = folder / "f16.gguf"
    convert(str(options.checkpoint), full)
    calibration = options.calibration.read_text(encoding="utf-8")
    files = []
    for number in range(options.draws):
        text = folder / f"{number}.txt"
        text.write_text(draw(calibration, number, options.draws), encoding="utf-8")
        imatrix = folder / f"{number}-imatrix.gguf"
        collect(full, imatrix, texts=[text], device="cpu", chunks=options.calibration_chunks)
        for recipe in options.type:
            ours, theirs = (folder / f"{recipe}-{number}-{who}.gguf" for who in ("ours", "theirs"))
            quantize(full, ours, type=recipe, imatrix=imatrix)
            quantize_with_llama(full, theirs, imatrix, recipe)
            files += [ours, theirs]
    return compare(full, files, options.evaluation, chunks=options.chunks, device="cpu")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--calibration", type=Path, required=True)
    parser.add_argument("--evaluation", type=Path, required=True)
    parser.add_argument("--type", nargs="+", default=["Q4_K_M"])
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--calibration-chunks", type=int, default=100)
    parser.add_argument("--chunks", type=int, default=120)
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        found = measure(options, Path(folder))
    print(f"{options.checkpoint.name}: F16 perplexity {found.reference.perplexity:.4f}")
    pairs = list(zip(found.candidates[::2], found.candidates[1::2], strict=True))
    for place, recipe in enumerate(options.type):
        ratios = []
        for ours, theirs in pairs[place :: len(options.type)]:
            ratios.append(ours.kl / theirs.kl)
            print(json.dumps({
                "ours": ours.kl, "theirs": theirs.kl, "ratio": ratios[-1], "error": ours.kl_error,
                "perplexity_ratio": ours.perplexity_ratio,
                "their_perplexity_ratio": theirs.perplexity_ratio,
                "same_top": ours.same_top, "their_same_top": theirs.same_top,
            }))  # fmt: skip
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"{recipe}: geometric mean {mean:.4f}, worst {max(ratios):.4f}")


if __name__ == "__main__":
    main()
