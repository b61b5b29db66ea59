"""Write a model file of a real shape with random weights, to measure speed, memory and loading.

    python tests/bench/make_model.py MODEL.gguf --shape llama-3.1-8b --type Q4_K_M

The types are those of the recipe, the vocabulary has 128,256 tokens and 280,147 merges like Llama
3's, and the weights are random blocks whose scales are such that activations neither explode nor
vanish. It needs of edgequant's dependencies only NumPy, gguf and tokenizers, and ml_dtypes.
Text that comes out of it is noise.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.make_checkpoint import REAL, Shape, config_of

from edgequant.blocks import BLOCK_TYPES, QUANTIZATION_VERSION, Bytes, TensorInfo
from edgequant.formats import dequantize, find, quantize
from edgequant.gguf.writer import open_output
from edgequant.model.architectures.llama import ARCHITECTURE
from edgequant.model.assignment import assign, is_output, read_sizes
from edgequant.model.hparams import HParams
from edgequant.model.recipes import find_recipe
from edgequant.model.tensors import TensorSpec
from edgequant.tokenizer.bpe import LETTERS
from edgequant.tokenizer.tokenizer import TokenType

SHAPES = {**REAL, "tiny": Shape(2, 256, 8, 2, 512, 1024, rope_freqs=True)}
POOL_NBYTES = 1 << 25  # of random blocks at most, from which all tensors of a format are cut
MERGES = 280_147  # at most
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@dataclass
class Pool:
    """Random blocks of a format; those of a tensor are some of them, its scale put in.

    Every other block's scale is negative, and offsets, where blocks have them, balance the rest: a
    mean that is not zero would grow from layer to layer.
    """

    blocks: np.ndarray
    deviation: float  # of the weights, where `d` is 1
    offset: float  # what the offsets are, as a share of `d`

    @classmethod
    def make(cls, name: str, nbytes: int, rng: np.random.Generator) -> "Pool":
        """Draw about so many bytes of them."""
        block = find(name).block
        count = nbytes // block.itemsize
        blocks = np.frombuffer(rng.bytes(count * block.itemsize), block).copy()
        if not block.names or "d" not in block.names:
            raise SystemExit(f"{name}: its blocks have no scale; take a recipe of other formats")
        pool = cls(blocks, 1.0, 0.0)
        offset = pool._offset
        means = []
        for pool.offset in (0.0, 1.0) if offset else (0.0,):
            pool.scale(1.0)
            means.append(float(pool._decoded(name).mean()))
        pool.offset = means[0] / (means[0] - means[1]) if offset else 0.0
        pool.scale(1.0)
        pool.deviation = float(np.sqrt(np.square(pool._decoded(name)).mean()))
        return pool

    @property
    def _offset(self) -> str | None:
        return next((n for n in self.blocks.dtype.names or () if n in ("dmin", "m")), None)

    def _decoded(self, name: str) -> np.ndarray:
        few = self.blocks[1:8192:2].copy().view(np.uint8).reshape(1, -1)
        return dequantize(find(name), few)

    def scale(self, deviation: float) -> None:
        """Give the weights a standard deviation."""
        d = np.full(len(self.blocks), deviation / self.deviation)
        d[::2] *= -1
        self.blocks["d"] = d
        if self._offset:
            self.blocks[self._offset] = d * self.offset

    def cut(self, nbytes: int, rng: np.random.Generator) -> Iterator[Bytes]:
        """Yield so many bytes of blocks, pieces from random places on."""
        while nbytes:
            start = int(rng.integers(len(self.blocks) // 2))
            piece = self.blocks[start:].view(np.uint8)[:nbytes]
            nbytes -= len(piece)
            yield piece


def write_model(path: Path, shape: Shape, recipe: str, seed: int = 1) -> int:
    """Write the file and return its tensors' bytes."""
    rng = np.random.default_rng(seed)
    hparams = HParams.from_config(
        {
            **config_of(shape),
            "max_position_embeddings": 131072,
            "rope_theta": 500000.0,
            **({"rope_scaling": LLAMA3} if shape.rope_freqs else {}),
        },
        str(path),
    )
    specs = {spec.name: spec for spec in ARCHITECTURE.tensors(hparams)}
    f16, f32 = BLOCK_TYPES["F16"], BLOCK_TYPES["F32"]
    infos = [
        TensorInfo(spec.name, f16 if len(spec.shape) > 1 else f32, spec.shape)
        for spec in specs.values()
    ]
    keys = {**hparams.to_keys(ARCHITECTURE.name), **tokenizer_keys(shape.vocab)}
    chosen = find_recipe(recipe)
    keys["general.file_type"] = chosen.file_type
    keys["general.quantization_version"] = QUANTIZATION_VERSION
    plan = assign(chosen, infos, read_sizes(keys, infos), imatrix=False)
    pools: dict[str, Pool] = {}
    pool_nbytes = min(POOL_NBYTES, 2 * max(assignment.info.nbytes for assignment in plan))
    with open_output(path, keys, [a.info for a in plan], force=True) as output:
        for info in (assignment.info for assignment in plan):
            name = info.type.name
            gain = 2 if is_output(info, tied=shape.tied) else 1
            if info.type.weights == 1:
                for rows in _floats(specs[info.name], gain, rng):
                    output.append(info.name, quantize(find(name), rows))
                continue
            if name not in pools:
                pools[name] = Pool.make(name, pool_nbytes, rng)
            pools[name].scale(gain / sqrt(info.columns))
            for piece in pools[name].cut(info.nbytes, rng):
                output.append(info.name, piece)
    return sum(assignment.info.nbytes for assignment in plan)


def _floats(spec: TensorSpec, gain: float, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield rows of a tensor that is not quantized: norms near 1, or a matrix."""
    if spec.compute is not None:
        yield spec.compute().reshape(1, -1)
    elif len(spec.shape) == 1:
        yield (1 + 0.1 * rng.standard_normal((1, *spec.shape))).astype(np.float32)
    else:
        rows, columns = spec.shape
        for start in range(0, rows, 1024):
            drawn = rng.standard_normal((min(1024, rows - start), columns), np.float32)
            yield drawn * np.float32(gain / sqrt(columns))


def tokenizer_keys(vocab: int) -> dict[str, object]:
    """Return a byte-level vocabulary: letters, syllables, and joins of two, three and four of them.

    Every merge makes a token of two others, and most tokens can be made in more than one way.
    """
    specials = 256 if vocab > 2000 else 8
    syllables = [a + b for a in "Ġbdfgklm" for b in "aeiou"]
    tokens = dict.fromkeys(LETTERS) | dict.fromkeys(syllables)
    merges = [f"{s[0]} {s[1]}" for s in syllables]
    last: list[str] = syllables
    while len(tokens) < vocab - specials:
        joined = [(before, syllable) for before in last for syllable in syllables]
        joined = joined[: vocab - specials - len(tokens)]
        last = [before + syllable for before, syllable in joined]
        tokens |= dict.fromkeys(last)
        for token in last:
            merges += [f"{token[:cut]} {token[cut:]}" for cut in range(2, len(token), 2)]
    named = ["<|begin_of_text|>", "<|end_of_text|>"]
    named += [f"<|reserved_{number}|>" for number in range(specials - len(named))]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "llama-bpe",
        "tokenizer.ggml.tokens": [*tokens, *named],
        "tokenizer.ggml.token_type": [int(TokenType.NORMAL)] * len(tokens)
        + [int(TokenType.CONTROL)] * specials,
        "tokenizer.ggml.merges": merges[:MERGES],
        "tokenizer.ggml.bos_token_id": len(tokens),
        "tokenizer.ggml.eos_token_id": len(tokens) + 1,
    }


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--shape", choices=SHAPES, default="llama-3.1-8b")
    parser.add_argument("--type", default="Q4_K_M", help="a recipe")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    began = time.perf_counter()
    nbytes = write_model(args.output, SHAPES[args.shape], args.type, args.seed)
    seconds = time.perf_counter() - began
    print(f"{args.output}: {nbytes / 1e9:.2f} GB of tensors in {seconds:.1f} s")


if __name__ == "__main__":
    main()
